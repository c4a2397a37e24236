"""Forward models: theta and closures to predicted observations and their derivatives."""

from ._blocks import solve_systems as solve_systems
from ._likelihood import Likelihood as Likelihood
from ._likelihood import likelihood as likelihood
from ._likelihood import seen_through as seen_through
from .noise import Measured as Measured
from .noise import Noise as Noise
from .noise import NoisePrior as NoisePrior
from .noise import ResidualStats as ResidualStats
from .noise import noise_of as noise_of
from .noise import noise_prior as noise_prior
from .surrogates._frame import Draw as Draw
from .surrogates._frame import Kind as Kind
from .surrogates._frame import Units as Units
from .surrogates._frame import supervised as supervised
from .surrogates._frame import trainable as trainable
from .surrogates._surrogate import SURROGATES as SURROGATES
from .surrogates._surrogate import forwards as forwards
