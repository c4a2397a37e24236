"""What a fit found: laws, summaries, replicated data."""

from ._law import closure_view as closure_view, table_of as table_of
from ._predictive import replicate as replicate, residual_views as residual_views
from ._summary import population_lines as population_lines, summarise as summarise, true_values as true_values
from ._tree import posterior_tree as posterior_tree
