"""What a user states: parameters, closures, an equation with a hole, observations."""

from ._closure import MLP as MLP
from ._closure import Closure as Closure
from ._closure import Known as Known
from ._closure import Range as Range
from ._closure import Scaling as Scaling
from ._closure import prepare as prepare
from ._domain import Mesh as Mesh
from ._domain import Rectangle as Rectangle
from ._elliptic import Elliptic as Elliptic
from ._integrators import RK4 as RK4
from ._integrators import Adaptive as Adaptive
from ._integrators import Leapfrog as Leapfrog
from ._observations import DataError as DataError
from ._observations import Observations as Observations
from ._observations import read_table as read_table
from ._ode import ODE as ODE
from ._parameters import Interval as Interval
from ._parameters import Parameters as Parameters
from ._parameters import Positive as Positive
from ._parameters import Real as Real
from ._problem import Problem as Problem
from ._problem import observed_columns as observed_columns
from ._problem import place_names as place_names
from ._shared import ProblemError as ProblemError
from ._shared import unit_scaling as unit_scaling
