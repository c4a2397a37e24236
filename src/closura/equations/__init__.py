"""Equations with a hole: what a user states, how it is discretised and solved."""

from ._align import align as align
from ._align import align_data as align_data
from ._align import bind_inputs as bind_inputs
from ._base import Equation as Equation
from ._base import ForwardModel as ForwardModel
from ._base import kinds_in_words as kinds_in_words
from ._base import place_names as place_names
from ._fingerprint import same_equation as same_equation
from ._index import ObservationIndex as ObservationIndex
from ._integrators import RK4 as RK4
from ._integrators import Adaptive as Adaptive
from ._integrators import Leapfrog as Leapfrog
from ._shared import NOISES as NOISES
from ._shared import NoiseModel as NoiseModel
from ._shared import ProblemError as ProblemError
from ._shared import unit_scaling as unit_scaling
from .elliptic._domain import Mesh as Mesh
from .elliptic._domain import Rectangle as Rectangle
from .elliptic._elliptic import Elliptic as Elliptic
from .elliptic._solver import EllipticSolver as EllipticSolver
from .evolution._evolution import Evolution as Evolution
from .evolution._schemes import Dirichlet as Dirichlet
from .evolution._schemes import Neumann as Neumann
from .evolution._solver import EvolutionSolver as EvolutionSolver
from .ode._ode import ODE as ODE
from .ode._solver import ODESolver as ODESolver
