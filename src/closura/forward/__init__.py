"""Forward models: theta and closures to predicted observations and their derivatives."""

from ._blocks import solve_systems as solve_systems
from ._likelihood import Likelihood as Likelihood
from ._likelihood import likelihood as likelihood
from .noise._noise import FAMILIES as FAMILIES
from .noise._noise import Family as Family
from .noise._noise import Fit as Fit
from .noise._noise import Scale as Scale
from .noise._noise import unknown_noise as unknown_noise
from .surrogates._frame import Draw as Draw
from .surrogates._frame import Units as Units
from .surrogates._frame import trainable as trainable
from .surrogates._surrogate import FORWARDS as FORWARDS
from .surrogates._surrogate import SURROGATES as SURROGATES
from .surrogates._surrogate import Surrogate as Surrogate
