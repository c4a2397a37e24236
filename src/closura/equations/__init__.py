"""Equations with a hole: what a user states, how it is discretised and solved."""

from ._align import align as align, align_data as align_data, bind_inputs as bind_inputs
from ._base import (
    Equation as Equation,
    ForwardModel as ForwardModel,
    kinds_in_words as kinds_in_words,
    place_names as place_names,
    same_equation as same_equation,
)
from ._index import (
    LawInputs as LawInputs,
    ObservationIndex as ObservationIndex,
    Predictions as Predictions,
    States as States,
    near_on_line as near_on_line,
)
from ._integrators import RK4 as RK4, Adaptive as Adaptive, Leapfrog as Leapfrog
from ._shared import (
    NOISES as NOISES,
    ProblemError as ProblemError,
    constant_laws as constant_laws,
    unit_laws as unit_laws,
    unit_scaling as unit_scaling,
)
from .custom._custom import Custom as Custom
from .elliptic._domain import Mesh as Mesh, Rectangle as Rectangle
from .elliptic._elliptic import Elliptic as Elliptic
from .elliptic._solver import EllipticSolver as EllipticSolver
from .evolution._evolution import Evolution as Evolution, EvolutionSolver as EvolutionSolver
from .evolution._schemes import Dirichlet as Dirichlet, Neumann as Neumann
from .ode._ode import ODE as ODE, ODESolver as ODESolver
