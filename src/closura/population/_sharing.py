"""Populations in which some parameters are the same for all systems."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ..parameters import Parameters
from ._base import Population
from ._population import Correlated, Diagonal, Effects, Independent


class Sharing(Population):
    """Theta has a row for every system still, with shared values in all of them; `varying` is the population of the rest.

    The prior of a shared value is counted in equal parts by all systems.
    """

    varying: Diagonal | Independent
    common: Independent
    mask: tuple[bool, ...] = eqx.field(static=True)

    @property
    def shared(self) -> tuple[bool, ...]:
        return self.mask

    @property
    def hierarchical(self) -> bool:
        return self.varying.hierarchical

    @property
    def effects(self) -> Effects | None:
        return getattr(self.varying, "effects", None)

    @property
    def mean(self) -> Float[Array, " parameter"]:
        return self._joined(self.varying.mean, self.common.mean)

    @property
    def variance(self) -> Float[Array, " parameter"]:
        return self._joined(self.varying.variance, self.common.variance)

    def phi_from_normal(self, normal: Float[Array, "2 parameter"]) -> PyTree:
        return self.varying.phi_from_normal(normal[:, self._free])

    def log_hyperprior(self, phi: PyTree) -> Float[Array, ""]:
        return self.varying.log_hyperprior(phi)

    def theta_from_normal(
        self, phi: PyTree, normal: Float[Array, "system parameter"]
    ) -> Float[Array, "system parameter"]:
        """Systems that standard normal numbers stand for; the first row tells what they share."""
        own = self.varying.theta_from_normal(phi, normal[:, self._free])
        same = self.common.theta_from_normal((), normal[:1, self._held])
        return self._joined(own, jnp.broadcast_to(same, (own.shape[0], same.shape[1])))

    def log_prior(
        self, theta: Float[Array, "system parameter"], phi: PyTree
    ) -> tuple[Float[Array, " system"], Float[Array, "system parameter"]]:
        systems = theta.shape[0]
        own, slope = self.varying.log_prior(theta[:, self._free], phi)
        same, pull = self.common.log_prior(theta[:, self._held], ())
        return own + same / systems, self._joined(slope, pull / systems)

    def randomness(self, key: PRNGKeyArray, chains: int) -> PyTree:
        return self.varying.randomness(key, chains)

    def gibbs(self, randomness: PyTree, theta: Float[Array, "system parameter"], phi: PyTree) -> PyTree:
        return self.varying.gibbs(randomness, theta[:, self._free], phi)

    def told(self, phi: PyTree, theta: np.ndarray) -> PyTree:
        """Draws of the population as of all parameters, shared ones with a spread of zero; theta (..., system, parameter)."""
        if not phi:
            return phi
        mu, log_tau = (np.full(theta.shape[:-2] + theta.shape[-1:], fill, theta.dtype) for fill in (0.0, -np.inf))
        mu[..., self._free], log_tau[..., self._free] = phi.mu, phi.log_tau
        mu[..., self._held] = theta[..., 0, self._held]
        return phi._replace(mu=mu, log_tau=log_tau)

    @property
    def _free(self) -> np.ndarray:
        return np.flatnonzero(~np.array(self.shared))

    @property
    def _held(self) -> np.ndarray:
        return np.flatnonzero(self.shared)

    def _joined(self, free: Array, held: Array) -> Array:
        """Columns of both kinds, in the order of the parameters."""
        return jnp.concatenate([free, held], axis=-1)[..., np.argsort([*self._free, *self._held])]


POPULATIONS: dict[str, type[Diagonal]] = {"diagonal": Diagonal, "full": Correlated}


def population(
    parameters: Parameters,
    hierarchical: bool = True,
    kind: str | type[Diagonal] = "diagonal",
    effects: Effects | None = None,
) -> Population:
    """The population whose hyperprior the problem's parameters state; its `kind` by name, or a class of your own."""
    shared, chosen = np.array(parameters.shared), POPULATIONS[kind] if isinstance(kind, str) else kind
    if not shared.any():
        return _population(parameters, ~shared, hierarchical, chosen, effects)
    varying = _population(parameters, ~shared, hierarchical and not shared.all(), chosen, effects)
    _, densities, mean, variance, _, _ = _stated(parameters, shared)
    return Sharing(varying, Independent(mean, variance, densities), tuple(shared.tolist()))


def alone(parameters: Parameters) -> Independent:
    """The prior of a system on its own."""
    variance, densities, mean, *_ = _stated(parameters, np.ones(len(parameters), bool))
    return Independent(mean, variance, densities)


def _population(
    parameters: Parameters, chosen: np.ndarray, hierarchical: bool, kind: type[Diagonal], effects: Effects | None
) -> Diagonal | Independent:
    alone, densities, mean, s_mu, m_tau, s_tau = _stated(parameters, chosen)
    if not hierarchical:
        return Independent(mean, alone, densities)
    return kind.suited(int(chosen.sum()))(mean, s_mu, m_tau, s_tau, densities, effects)


def _stated(parameters: Parameters, chosen: np.ndarray) -> tuple[PyTree, ...]:
    """Of chosen parameters: variance of a system on its own, densities that are not normal, then as `Diagonal` takes them."""
    columns = [parameters.system_variance, parameters.mean, parameters.mean_variance]
    columns += [parameters.log_variance, parameters.log_variance_variance]
    alone, *rest = (jnp.asarray(column[chosen], float) for column in columns)
    densities = tuple(density for density, here in zip(parameters.log_densities, chosen) if here)
    return alone, densities if any(densities) else (), *rest
