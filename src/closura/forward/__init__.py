"""Forward models: theta and closures to predicted observations and their derivatives."""

from ._blocks import block_size as block_size, solve_systems as solve_systems
from ._likelihood import Likelihood as Likelihood, likelihood as likelihood, seen_through as seen_through
from .noise import (
    Measured as Measured,
    Noise as Noise,
    NoisePrior as NoisePrior,
    ResidualStats as ResidualStats,
    noise_of as noise_of,
    noise_prior as noise_prior,
)
from .surrogates._frame import (
    Draw as Draw,
    Kind as Kind,
    Units as Units,
    supervised as supervised,
    trainable as trainable,
)
from .surrogates._law_values import LawValues as LawValues, law_values as law_values
from .surrogates._surrogate import (
    SURROGATES as SURROGATES,
    Surrogate as Surrogate,
    allowed as allowed,
    forwards as forwards,
    sees_laws as sees_laws,
)
