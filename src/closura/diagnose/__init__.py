"""Verdict, and scores against the truth where there is one."""

from ._belongs import DEAR as DEAR
from ._belongs import LEVEL as LEVEL
from ._belongs import MOST as MOST
from ._belongs import Belongs as Belongs
from ._belongs import belongs as belongs
from ._belongs import moments as moments
from ._checks import check_table as check_table
from ._identify import confounded as confounded
from ._remarks import Remark as Remark
from ._remarks import remarks as remarks
from ._truth import Truth as Truth
from ._truth import closure_mse as closure_mse
from ._truth import closure_mse_visited as closure_mse_visited
from ._truth import on_points as on_points
from ._truth import theta_scores as theta_scores
from ._verdict import SurrogateError as SurrogateError
from ._verdict import Verdict as Verdict
from ._verdict import judge as judge
