"""Populations in which some parameters are the same for all systems."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ..parameters import Parameters
from ._base import Population, Theta
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

    @property
    def prior_variances(self) -> dict[str, Float[Array, " number"]]:
        return self.varying.prior_variances | {"shared": self.common.variance}

    def phi_from_normal(self, normal: Float[Array, "2 parameter"]) -> PyTree:
        return self.varying.phi_from_normal(normal[:, self._free])

    def log_hyperprior(self, phi: PyTree) -> Float[Array, ""]:
        return self.varying.log_hyperprior(phi)

    def theta_from_normal(self, phi: PyTree, normal: Theta) -> Theta:
        """Systems that standard normal numbers stand for; the first row tells what they share."""
        own = self.varying.theta_from_normal(phi, normal[:, self._free])
        same = self.common.theta_from_normal((), normal[:1, self._held])
        return self._joined(own, jnp.broadcast_to(same, (own.shape[0], same.shape[1])))

    def log_prior(self, theta: Theta, phi: PyTree) -> tuple[Float[Array, " system"], Theta]:
        systems = theta.shape[0]
        own, own_gradient = self.varying.log_prior(theta[:, self._free], phi)
        same, same_gradient = self.common.log_prior(theta[:, self._held], ())
        return own + same / systems, self._joined(own_gradient, same_gradient / systems)

    def precision(self, phi: PyTree) -> Float[Array, "own own"]:
        return self.varying.precision(phi)

    @property
    def mean_precision(self) -> Float[Array, " own"] | None:
        return self.varying.mean_precision

    @property
    def shared_precision(self) -> Float[Array, " held"]:
        return 1 / self.common.variance

    def with_mean_moved(self, phi: PyTree, by: Float[Array, "*chain own"]) -> PyTree:
        return self.varying.with_mean_moved(phi, by)

    def followed(self, phi: PyTree, before: Float[Array, "*chain system parameter"], after: Array) -> PyTree:
        return self.varying.followed(phi, before[..., self._free], after[..., self._free])

    def randomness(self, key: PRNGKeyArray, chains: int) -> PyTree:
        return self.varying.randomness(key, chains)

    def gibbs(self, randomness: PyTree, theta: Theta, phi: PyTree) -> PyTree:
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
    shared = np.array(parameters.shared)
    chosen = POPULATIONS[kind] if isinstance(kind, str) else kind
    varying: Diagonal | Independent = _independent(parameters, ~shared, parameters.system_variance)
    if hierarchical and not shared.all():
        columns = parameters.mean, parameters.mean_variance, parameters.log_variance, parameters.log_variance_variance
        mean, s_mu, m_tau, s_tau = (jnp.asarray(column[~shared], float) for column in columns)
        varying = chosen.suited(len(mean))(mean, s_mu, m_tau, s_tau, varying.log_densities, effects)
    if not shared.any():
        return varying
    return Sharing(varying, _independent(parameters, shared, parameters.mean_variance), tuple(shared.tolist()))


def alone(parameters: Parameters) -> Independent:
    """The prior of a system on its own."""
    return _independent(parameters, np.ones(len(parameters), bool), parameters.system_variance)


def _independent(parameters: Parameters, chosen: np.ndarray, variance: np.ndarray) -> Independent:
    densities = tuple(density for density, here in zip(parameters.log_densities, chosen) if here)
    mean, own = (jnp.asarray(column[chosen], float) for column in (parameters.mean, variance))
    return Independent(mean, own, densities if any(densities) else ())
