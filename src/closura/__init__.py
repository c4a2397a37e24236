"""closura: many related systems, one hidden law.

Given data from K physical systems of one family, `fit` infers each system's parameters with uncertainty, the population
they come from, and the shared part of the physics nobody wrote down.
"""

import os

# A failed linear solve inside a stiff integrator is a rejected proposal, not an exception; equinox reads this once.
os.environ.setdefault("EQX_ON_ERROR", "nan")

from ._check import check as check
from ._fit import fit as fit
from ._fit import use_cores as use_cores
from .diagnose import Truth as Truth
from .learning import Settings as Settings
from .learning import SettingsError as SettingsError
from .problem import MLP as MLP
from .problem import ODE as ODE
from .problem import RK4 as RK4
from .problem import Adaptive as Adaptive
from .problem import Column as Column
from .problem import DataError as DataError
from .problem import Dirichlet as Dirichlet
from .problem import Elliptic as Elliptic
from .problem import Evolution as Evolution
from .problem import Gamma as Gamma
from .problem import HalfNormal as HalfNormal
from .problem import Interval as Interval
from .problem import Known as Known
from .problem import Leapfrog as Leapfrog
from .problem import LogNormal as LogNormal
from .problem import Mesh as Mesh
from .problem import Neumann as Neumann
from .problem import Normal as Normal
from .problem import Observations as Observations
from .problem import Positive as Positive
from .problem import ProblemError as ProblemError
from .problem import Real as Real
from .problem import Rectangle as Rectangle
from .problem import Signal as Signal
from .problem import TruncatedNormal as TruncatedNormal
from .problem import Uniform as Uniform
from .problem import read_table as read_table
from .result import LawError as LawError
from .result import LoadError as LoadError
from .result import Result as Result
from .result import load as load
from .result import load_closures as load_closures
from .track import Tracker as Tracker
from .track import TrackerError as TrackerError

__version__ = "0.1.0"
