"""The population that a fit left behind, as draws: the prior of systems that were not in it.

    p(theta | y, fleet)  ~  sum over stored draws s of  L(y | theta, sigma_s, law_s) p(theta | phi_s)

What stands for phi is the number of a stored draw, one for each system: new systems share nothing but the fleet.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from ._base import Population, Theta
from ._population import Independent

Index = Int[Array, " system"]


class PopulationDraws(eqx.Module):
    """Draws of population, noise and law.

    - `center`: the population's mean for each new system (covariates may shift it); `white` times the distance from it is
      standard normal. Both None where the fit had no population.
    - `log_sigma`: size of the noise, zero where it is known; None where all of it is.
    - `law`: laws of which every draw has its own, by name, the draw axis first.
    """

    center: Float[Array, "draw system parameter"] | None
    white: Float[Array, "draw parameter parameter"] | None
    log_sigma: Float[Array, "draw quantity"] | None
    law: PyTree = ()

    @property
    def count(self) -> int:
        """How many draws there are; one where there is nothing to choose."""
        return next((len(a) for a in jax.tree.leaves((self.center, self.log_sigma, self.law))), 1)

    def theta_from_normal(
        self, index: Int[Array, " draw"], normal: Float[Array, "draw system parameter"]
    ) -> Float[Array, "draw system parameter"]:
        """Members of the populations `index`, that standard normal numbers stand for."""
        assert self.center is not None
        assert self.white is not None
        lower = jnp.linalg.inv(self.white[index])
        return self.center[index] + jnp.einsum("dpq,dsq->dsp", lower, normal)


class Empirical(Population):
    """Stored draws as a population: phi is the number of the draw that each system goes with.

    `prior` is the problem's own, wide one: what a system starts from, and all there is where the fit had no population.
    `weight` goes from it (0) to the population (1).
    """

    draws: PopulationDraws
    prior: Independent
    weight: Float[Array, ""] | float = 1.0

    @property
    def mean(self) -> Float[Array, " parameter"]:
        return self.prior.mean

    @property
    def variance(self) -> Float[Array, " parameter"]:
        return self.prior.variance

    def annealed(self, weight: Float[Array, ""]) -> "Empirical":
        return Empirical(self.draws, self.prior, weight)

    def log_prior(self, theta: Theta, phi: Index) -> tuple[Float[Array, " system"], Theta]:
        """Each system under its own draw, up to a constant."""
        before = self.prior.log_prior(theta, ())
        if self.draws.center is None or self.draws.white is None:
            return before
        white = self.draws.white[phi]
        away = jnp.einsum("spq,sq->sp", white, theta - self.draws.center[phi, jnp.arange(theta.shape[0])])
        size = jnp.sum(jnp.log(jnp.diagonal(white, axis1=-2, axis2=-1)), axis=-1)
        value = size - 0.5 * jnp.sum(away**2, axis=-1)
        gradient = -jnp.einsum("spq,sp->sq", white, away)
        beside = 1 - self.weight
        return beside * before[0] + self.weight * value, beside * before[1] + self.weight * gradient

    def theta_from_normal(self, phi: Index, normal: Theta) -> Theta:
        if self.draws.center is None or self.draws.white is None:
            return self.prior.theta_from_normal((), normal)
        away = jax.scipy.linalg.solve_triangular(self.draws.white[phi], normal[..., None], lower=True)[..., 0]
        return self.draws.center[phi, jnp.arange(len(phi))] + away

    def carried(self, theta: Theta, old: Index, new: Index) -> Theta:
        """Theta at the same place in other draws of the population: as many standard deviations from the mean."""
        if self.draws.center is None or self.draws.white is None:
            return theta
        away = theta - self.draws.center[old, jnp.arange(len(old))]
        return self.theta_from_normal(new, jnp.einsum("spq,sq->sp", self.draws.white[old], away))

    def log_volume(self, phi: Index) -> Float[Array, " system"]:
        """Log volume of theta in population standard deviations, of each system's draw."""
        if self.draws.white is None:
            return jnp.zeros(phi.shape)
        return -jnp.sum(jnp.log(jnp.diagonal(self.draws.white[phi], axis1=-2, axis2=-1)), axis=-1)

    def precision(self, phi: Index) -> Float[Array, "own own"]:
        """That of the wide prior: systems go with different draws."""
        return jnp.diag(1 / self.prior.variance)

    def given(self, phi: Index) -> dict[str, PyTree]:
        """Fields of the chains' state that come with stored draws: their numbers, noise and laws."""
        fields: dict[str, PyTree] = {"phi": phi}
        if self.draws.log_sigma is not None:
            fields["log_sigma"] = self.draws.log_sigma[phi]
        if self.draws.law:
            fields["law"] = jax.tree.map(lambda a: a[phi], self.draws.law)
        return fields

    def index(self, uniform: Float[Array, "*shape"]) -> Int[Array, "*shape"]:
        """Numbers of stored draws that uniform numbers stand for."""
        return jnp.minimum((uniform * self.draws.count).astype(int), self.draws.count - 1)

    def members(self, phi: Index, normal: Theta, uniform: Float[Array, " system"]) -> dict[str, PyTree]:
        """Fresh systems, each of a stored draw chosen at random."""
        chosen = self.index(uniform)
        return {"theta": self.theta_from_normal(chosen, normal), **self.given(chosen)}
