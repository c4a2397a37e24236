"""Kernels that compose, preconditioners, convergence."""

from ._blocks import JointBlock as JointBlock, SharedBlock as SharedBlock, SystemBlocks as SystemBlocks
from ._convergence import (
    ESS_LEAST as ESS_LEAST,
    RHAT_LIMIT as RHAT_LIMIT,
    Convergence as Convergence,
    convergence as convergence,
    convergence_if_enough as convergence_if_enough,
)
from ._differential_evolution import DifferentialEvolution as DifferentialEvolution
from ._gauss_newton import (
    Above as Above,
    Precisions as Precisions,
    above as above,
    information as information,
    precisions as precisions,
)
from ._gibbs import NoiseGibbs as NoiseGibbs, PopulationGibbs as PopulationGibbs
from ._independence import Independence as Independence
from ._kernel import Kernel as Kernel, Tuning as Tuning, init_all as init_all, sweep as sweep
from ._law_move import LawMove as LawMove
from ._law_size import LawSize as LawSize
from ._law_step import LawStep as LawStep
from ._mala import Mala as Mala, MalaTuning as MalaTuning
from ._multi_try import MultiTry as MultiTry
from ._names import labels_of as labels_of, named_draws as named_draws, scalar_name as scalar_name
from ._posterior import Posterior as Posterior
from ._preconditioner import cholesky as cholesky, ensemble_covariance as ensemble_covariance
from ._resample import Resample as Resample
from ._some_systems import SomeSystems as SomeSystems
from ._state import (
    DEPENDS_ON as DEPENDS_ON,
    Cache as Cache,
    Chains as Chains,
    GroupKeys as GroupKeys,
    Info as Info,
    Told as Told,
    choose_fields as choose_fields,
    per_group as per_group,
    split_keys as split_keys,
    uniforms_by_group as uniforms_by_group,
)
from ._stored_draw import StoredDraw as StoredDraw
