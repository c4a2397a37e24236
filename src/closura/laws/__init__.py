"""Laws: the part of the physics that is unknown, or stated."""

from ._base import (
    AbstractLaw as AbstractLaw,
    LawError as LawError,
    Laws as Laws,
    LawSpec as LawSpec,
    Range as Range,
    Scaling as Scaling,
    SolverLaw as SolverLaw,
    SolverLaws as SolverLaws,
    bind as bind,
    build as build,
    chain_axes as chain_axes,
    first_of as first_of,
    over_draws as over_draws,
    prepare as prepare,
)
from ._basis import Frame as CurveFrame
from ._fitted import (
    FittedLaw as FittedLaw,
    Support as Support,
    choose as choose,
    fitted as fitted,
    support_of as support_of,
    was_given as was_given,
)
from ._known import Known as Known, KnownLaw as KnownLaw
from ._law import Law as Law
from ._mlp import MLP as MLP, NetworkLaw as NetworkLaw
from ._plane import PlaneFrame as PlaneFrame
from ._resolution import unresolved as unresolved
from ._smooth import SmoothLaw as SmoothLaw
from ._stored import StoredLaw as StoredLaw
from ._structure import Structure as Structure
from .export import export_law as export_law

Frame = CurveFrame | PlaneFrame  # what sampled laws are prepared with
