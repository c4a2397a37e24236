"""Kernels that compose, preconditioners, convergence."""

from ._blocks import (
    Blocks as Blocks,
    JointBlock as JointBlock,
    SharedBlock as SharedBlock,
    SystemBlocks as SystemBlocks,
)
from ._convergence import (
    ESS_LEAST as ESS_LEAST,
    RHAT_LIMIT as RHAT_LIMIT,
    Convergence as Convergence,
    Worst as Worst,
    convergence as convergence,
)
from ._differential_evolution import DifferentialEvolution as DifferentialEvolution
from ._gibbs import NoiseGibbs as NoiseGibbs, PopulationGibbs as PopulationGibbs
from ._kernel import (
    Kernel as Kernel,
    Tuning as Tuning,
    init_all as init_all,
    missing_moves as missing_moves,
    sweep as sweep,
)
from ._mala import STEP_BOUNDS as STEP_BOUNDS, Mala as Mala, MalaTuning as MalaTuning
from ._multi_try import MultiTry as MultiTry
from ._names import labels_of as labels_of, named_draws as named_draws
from ._posterior import Posterior as Posterior, Target as Target
from ._preconditioner import cholesky as cholesky, ensemble_covariance as ensemble_covariance
from ._resample import Resample as Resample
from ._state import (
    DEPENDS_ON as DEPENDS_ON,
    Cache as Cache,
    Chains as Chains,
    GroupKeys as GroupKeys,
    Info as Info,
    choose as choose,
    choose_fields as choose_fields,
    per_group as per_group,
    split_keys as split_keys,
)
from ._stored_draw import StoredDraw as StoredDraw
