"""Laws: the part of the physics that is unknown, or stated."""

from ._closure import MLP as MLP
from ._closure import QUICK as QUICK
from ._closure import Closure as Closure
from ._closure import Closures as Closures
from ._closure import ClosureSpec as ClosureSpec
from ._closure import Known as Known
from ._closure import KnownClosure as KnownClosure
from ._closure import MonotoneNetwork as MonotoneNetwork
from ._closure import Range as Range
from ._closure import Scaling as Scaling
from ._closure import bind as bind
from ._closure import factored as factored
from ._closure import prepare as prepare
from ._closure import reflects as reflects
from ._closure import shifted as shifted
