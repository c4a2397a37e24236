"""What a fit found: laws, summaries, replicated data."""

from ._export import export_law as export_law
from ._law import Law as Law
from ._law import LawError as LawError
from ._law import Support as Support
from ._law import choose as choose
from ._law import closure_view as closure_view
from ._law import support_of as support_of
from ._law import table_of as table_of
from ._law import was_given as was_given
from ._predictive import replicate as replicate
from ._predictive import residual_views as residual_views
from ._summary import population_lines as population_lines
from ._summary import summarise as summarise
from ._summary import true_values as true_values
from ._tree import posterior_tree as posterior_tree
