"""Forward models: theta and closures to predicted observations and their derivatives."""

from ._elliptic import EllipticSolver as EllipticSolver
from ._evolution import EvolutionSolver as EvolutionSolver
from ._likelihood import Likelihood as Likelihood
from ._likelihood import likelihood as likelihood
from ._likelihood import solve_many as solve_many
from ._methods import in_strip as in_strip
from ._methods import solver as solver
from ._methods import stencil as stencil
from ._networks import Units as Units
from ._networks import trainable as trainable
from ._noise import FAMILIES as FAMILIES
from ._noise import Family as Family
from ._noise import Fit as Fit
from ._noise import Scale as Scale
from ._noise import unknown_noise as unknown_noise
from ._solver import Solver as Solver
from ._solver import Where as Where
from ._surrogate import KINDS as KINDS
from ._surrogate import Surrogate as Surrogate
