"""What a user states: parameters, closures, an equation with a hole, observations."""

from ._closure import MLP as MLP
from ._closure import Closure as Closure
from ._closure import Known as Known
from ._closure import Range as Range
from ._closure import Scaling as Scaling
from ._closure import prepare as prepare
from ._evolution import Evolution as Evolution
from ._integrators import RK4 as RK4
from ._integrators import Adaptive as Adaptive
from ._integrators import Leapfrog as Leapfrog
from ._observations import DataError as DataError
from ._observations import Observations as Observations
from ._observations import read_table as read_table
from ._ode import ODE as ODE
from ._ode import ProblemError as ProblemError
from ._ode import unit_scaling as unit_scaling
from ._parameters import Interval as Interval
from ._parameters import Parameters as Parameters
from ._parameters import Positive as Positive
from ._parameters import Real as Real
from ._schemes import Dirichlet as Dirichlet
from ._schemes import Neumann as Neumann
