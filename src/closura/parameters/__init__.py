"""Parameters of a system: transforms, priors, and inputs that are known."""

from ._known_inputs import Column as Column, Series as Series, Signal as Signal, System as System, Theta as Theta
from ._parameters import (
    Interval as Interval,
    Parameter as Parameter,
    Parameters as Parameters,
    Physical as Physical,
    Positive as Positive,
    Real as Real,
    Stated as Stated,
    check_name as check_name,
)
from ._priors import (
    Gamma as Gamma,
    HalfNormal as HalfNormal,
    LogNormal as LogNormal,
    Normal as Normal,
    Prior as Prior,
    TruncatedNormal as TruncatedNormal,
    Uniform as Uniform,
)
