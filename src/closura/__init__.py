"""closura: many related systems, one hidden law.

Given data from K physical systems of one family, `fit` infers each system's parameters with uncertainty, the population
they come from, and the shared part of the physics nobody wrote down.
"""

from ._check import check as check
from ._fit import fit as fit
from ._fit import use_cores as use_cores
from .data import DataError as DataError
from .data import Observations as Observations
from .data import read_table as read_table
from .diagnose import Truth as Truth
from .equations import ODE as ODE
from .equations import RK4 as RK4
from .equations import Adaptive as Adaptive
from .equations import Custom as Custom
from .equations import Dirichlet as Dirichlet
from .equations import Elliptic as Elliptic
from .equations import Evolution as Evolution
from .equations import Leapfrog as Leapfrog
from .equations import Mesh as Mesh
from .equations import Neumann as Neumann
from .equations import ProblemError as ProblemError
from .equations import Rectangle as Rectangle
from .forward import Noise as Noise
from .laws import MLP as MLP
from .laws import Known as Known
from .laws import LawError as LawError
from .learning import Settings as Settings
from .learning import SettingsError as SettingsError
from .parameters import Column as Column
from .parameters import Gamma as Gamma
from .parameters import HalfNormal as HalfNormal
from .parameters import Interval as Interval
from .parameters import LogNormal as LogNormal
from .parameters import Normal as Normal
from .parameters import Positive as Positive
from .parameters import Real as Real
from .parameters import Signal as Signal
from .parameters import TruncatedNormal as TruncatedNormal
from .parameters import Uniform as Uniform
from .runs import LoadError as LoadError
from .runs import Result as Result
from .runs import load as load
from .runs import load_closures as load_closures
from .track import Tracker as Tracker
from .track import TrackerError as TrackerError

__version__ = "0.2.0"
