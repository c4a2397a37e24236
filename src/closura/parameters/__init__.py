"""Parameters of a system: transforms, priors, and inputs that are known."""

from ._known_inputs import Column as Column
from ._known_inputs import Series as Series
from ._known_inputs import Signal as Signal
from ._known_inputs import System as System
from ._known_inputs import Theta as Theta
from ._parameters import Interval as Interval
from ._parameters import Parameter as Parameter
from ._parameters import Parameters as Parameters
from ._parameters import Positive as Positive
from ._parameters import Real as Real
from ._parameters import Stated as Stated
from ._parameters import check_name as check_name
from ._priors import Gamma as Gamma
from ._priors import HalfNormal as HalfNormal
from ._priors import LogNormal as LogNormal
from ._priors import Normal as Normal
from ._priors import Prior as Prior
from ._priors import TruncatedNormal as TruncatedNormal
from ._priors import Uniform as Uniform
