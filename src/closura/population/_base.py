"""The contract of a population."""

import abc
from typing import TYPE_CHECKING

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

Theta = Float[Array, "system parameter"]


class Population(eqx.Module):
    """p(phi) and p(theta | phi), for one chain; callers batch over chains.

    Standard normal numbers stand for draws, so that one call of the generator serves a whole step. A population must have
    `mean`, `variance`, `theta_from_normal` and `log_prior`; one that is `hierarchical` has hyperparameters phi too, and how
    these are drawn.
    """

    if TYPE_CHECKING:

        @property
        def mean(self) -> Float[Array, " parameter"]:
            """Of a system about which nothing is known; `variance` too."""
            ...

        @property
        def variance(self) -> Float[Array, " parameter"]: ...

    else:  # fields or properties
        mean: eqx.AbstractVar[Float[Array, " parameter"]]
        variance: eqx.AbstractVar[Float[Array, " parameter"]]

    @property
    def hierarchical(self) -> bool:
        return False

    @property
    def shared(self) -> tuple[bool, ...] | None:
        """Which parameters are the same in all systems; None where none is."""
        return None

    @abc.abstractmethod
    def log_prior(self, theta: Theta, phi: PyTree) -> tuple[Float[Array, " system"], Theta]:
        """log p(theta_k | phi) of each system, and its gradient."""

    @abc.abstractmethod
    def theta_from_normal(self, phi: PyTree, normal: Theta) -> Theta:
        """Systems of this population that standard normal numbers stand for."""

    def phi_from_normal(self, normal: Float[Array, "2 parameter"]) -> PyTree:
        """Hyperparameters that standard normal numbers stand for, about as the hyperprior has them."""
        return ()

    def log_hyperprior(self, phi: PyTree) -> Float[Array, ""]:
        return jnp.zeros(())

    @abc.abstractmethod
    def precision(self, phi: PyTree) -> Float[Array, "own own"]:
        """Of a system's own parameters (those that are not shared) given phi: minus the Hessian of `log_prior`, about."""

    @property
    def mean_precision(self) -> Float[Array, " own"] | None:
        """Of the population's mean under its hyperprior; None where phi has no mean that `with_mean_moved` could move."""
        return None

    @property
    def prior_variances(self) -> dict[str, Float[Array, " number"]]:
        """Of hyperparameters before data, by the names that draws have: mu, log_tau, covariate_effect, correlation, shared.
        What is not named here is not judged by how much data narrowed it."""
        return {}

    @property
    def shared_precision(self) -> Float[Array, " held"]:
        """Of shared parameters under their prior."""
        return jnp.zeros(0)

    def with_mean_moved(self, phi: PyTree, by: Float[Array, "*chain own"]) -> PyTree:
        """phi with the population's mean moved."""
        return phi

    def followed(self, phi: PyTree, before: Float[Array, "*chain system parameter"], after: Array) -> PyTree:
        """phi with systems that moved: where its mean is as far from theirs, and its spread is to theirs, as before."""
        return phi

    def randomness(self, key: PRNGKeyArray, chains: int) -> PyTree:
        """The randomness of `chains` Gibbs draws, drawn at once."""
        return ()

    def gibbs(self, randomness: PyTree, theta: Theta, phi: PyTree) -> PyTree:
        """Draw phi given theta of all systems."""
        return phi

    def told(self, phi: PyTree, theta: np.ndarray) -> PyTree:
        """Draws of phi as of all parameters, beside draws of theta (..., system, parameter)."""
        return phi

    def annealed(self, weight: Float[Array, ""]) -> "Population":
        """The population on its way in from a wider prior, at a weight from 0 to 1; most come as they are."""
        return self

    def members(self, phi: PyTree, normal: Theta, uniform: Float[Array, " system"]) -> dict[str, PyTree]:
        """Fields of the chains' state that come with fresh systems: theta, and what it is drawn given, if that is fresh too."""
        return {"theta": self.theta_from_normal(phi, normal)}
