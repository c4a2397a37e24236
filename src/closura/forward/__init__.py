"""Forward models: theta and closures to predicted observations and their derivatives."""

from ._likelihood import Likelihood as Likelihood
from ._likelihood import likelihood as likelihood
from ._likelihood import seen_through as seen_through
from ._likelihood import solve_many as solve_many
from .noise import LogScale as LogScale
from .noise import Measured as Measured
from .noise import Noise as Noise
from .noise import NoisePrior as NoisePrior
from .noise import ResidualStats as ResidualStats
from .noise import noise_of as noise_of
from .noise import noise_prior as noise_prior
from .surrogates._networks import Units as Units
from .surrogates._networks import trainable as trainable
from .surrogates._surrogate import KINDS as KINDS
from .surrogates._surrogate import Surrogate as Surrogate
