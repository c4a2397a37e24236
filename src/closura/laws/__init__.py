"""Laws: the part of the physics that is unknown, or stated."""

from ._base import AbstractLaw as AbstractLaw
from ._base import Laws as Laws
from ._base import LawSpec as LawSpec
from ._base import Range as Range
from ._base import Scaling as Scaling
from ._base import SolverLaw as SolverLaw
from ._base import SolverLaws as SolverLaws
from ._base import bind as bind
from ._base import build as build
from ._base import chain_axes as chain_axes
from ._base import first_of as first_of
from ._base import over_draws as over_draws
from ._base import prepare as prepare
from ._found import Law as Law
from ._found import LawError as LawError
from ._found import Support as Support
from ._found import choose as choose
from ._found import support_of as support_of
from ._found import was_given as was_given
from ._known import Known as Known
from ._known import KnownLaw as KnownLaw
from ._mlp import MLP as MLP
from ._mlp import NetworkLaw as NetworkLaw
from ._structure import Structure as Structure
from .export import export_law as export_law
