"""Forward models: theta and closures to predicted observations and their derivatives."""

from ._solver import Likelihood as Likelihood
from ._solver import Solver as Solver
from ._solver import Where as Where
from ._solver import likelihood as likelihood
from ._solver import solver as solver
