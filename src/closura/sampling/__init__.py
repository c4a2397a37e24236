"""Ensemble MALA kernels, blocks and adaptation."""

from ._blocks import BLOCKS as BLOCKS
from ._blocks import JointBlocks as JointBlocks
from ._blocks import SystemBlocks as SystemBlocks
from ._convergence import ESS_LEAST as ESS_LEAST
from ._convergence import RHAT_LIMIT as RHAT_LIMIT
from ._convergence import Convergence as Convergence
from ._convergence import convergence as convergence
from ._mala import Ensemble as Ensemble
from ._mala import GroupKeys as GroupKeys
from ._mala import Info as Info
from ._mala import adapt as adapt
from ._mala import cholesky as cholesky
from ._mala import ensemble_covariance as ensemble_covariance
from ._mala import identity_like as identity_like
from ._mala import init as init
from ._mala import step as step
