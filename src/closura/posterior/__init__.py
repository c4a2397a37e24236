"""What a fit found: laws, summaries, replicated data."""

from ._law import (
    closure_view as closure_view,
    table_of as table_of,
)
from ._predictive import (
    noise_by_quantity as noise_by_quantity,
    replicate as replicate,
    residual_views as residual_views,
)
from ._summary import (
    described as described,
    population_lines as population_lines,
    posterior_tree as posterior_tree,
    summarise as summarise,
    true_values as true_values,
)
