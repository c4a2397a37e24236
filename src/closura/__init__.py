"""closura: many related systems, one hidden law.

Given data from K physical systems of one family, `fit` infers each system's parameters with uncertainty, the population
they come from, and the shared part of the physics nobody wrote down.
"""

from ._check import check as check
from ._fit import fit as fit, use_cores as use_cores
from .data import DataError as DataError, Observations as Observations, read_table as read_table
from .diagnose import Truth as Truth
from .equations import (
    ODE as ODE,
    RK4 as RK4,
    Adaptive as Adaptive,
    Custom as Custom,
    Dirichlet as Dirichlet,
    Elliptic as Elliptic,
    Evolution as Evolution,
    Leapfrog as Leapfrog,
    Mesh as Mesh,
    Neumann as Neumann,
    ProblemError as ProblemError,
    Rectangle as Rectangle,
)
from .forward import Noise as Noise
from .laws import MLP as MLP, Known as Known, Law as Law, LawError as LawError
from .learning import Settings as Settings, SettingsError as SettingsError
from .parameters import (
    Column as Column,
    Gamma as Gamma,
    HalfNormal as HalfNormal,
    Interval as Interval,
    LogNormal as LogNormal,
    Normal as Normal,
    Positive as Positive,
    Real as Real,
    Signal as Signal,
    TruncatedNormal as TruncatedNormal,
    Uniform as Uniform,
)
from .runs import LoadError as LoadError, Result as Result, load as load, load_closures as load_closures
from .track import Tracker as Tracker, TrackerError as TrackerError

__version__ = "0.2.0"
