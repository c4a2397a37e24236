"""Forward models: theta and closures to predicted observations and their derivatives."""

from ._likelihood import Likelihood as Likelihood
from ._likelihood import likelihood as likelihood
from ._likelihood import solve_many as solve_many
from .noise._noise import FAMILIES as FAMILIES
from .noise._noise import Family as Family
from .noise._noise import Fit as Fit
from .noise._noise import Scale as Scale
from .noise._noise import unknown_noise as unknown_noise
from .surrogates._networks import Units as Units
from .surrogates._networks import trainable as trainable
from .surrogates._surrogate import KINDS as KINDS
from .surrogates._surrogate import Surrogate as Surrogate
