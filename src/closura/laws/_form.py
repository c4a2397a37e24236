"""A form that a law is known to have nearly: a formula of its input, with parameters nobody is sure of."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ..parameters import Column, Parameter, Parameters, Prior, Signal

Stated = tuple[tuple[str, Parameter | Prior | float], ...]


@dataclass(frozen=True)
class KnownForm:
    """`function(x, p)` with `parameters` of p: what is believed of each, or the number it is."""

    function: Callable[..., ArrayLike]
    stated: Stated

    def check(self) -> None:
        """Raise what can be told without a call."""
        if not callable(self.function):
            raise TypeError(f"Law: around={self.function!r} must be a function, as in around=lambda v, p: p.c * v**3")
        if not any(isinstance(kind, Parameter | Prior) for _, kind in self.stated):
            raise ValueError(
                "Law: around needs parameters that are inferred, as in parameters={'c': cl.Positive(0.5)}; "
                "with a plain number in its place a parameter is fixed, but not all of them can be"
            )
        signals = [name for name, kind in self.stated if isinstance(kind, Column | Signal)]
        if signals:
            raise ValueError(
                f"Law: a form has parameters and numbers, and {signals[0]!r} is neither; pass it to the law"
            )

    @functools.cached_property
    def parameters(self) -> Parameters:
        return Parameters(dict(self.stated))

    @property
    def guess(self) -> np.ndarray:
        """Of the parameters, on their unconstrained scale."""
        return self.parameters.mean

    def theta(self, standard: Float[Array, "*batch parameter"]) -> Float[Array, "*batch parameter"]:
        """The parameters on their unconstrained scale, from numbers that are standard normal before data."""
        sd = np.sqrt(self.parameters.mean_variance)
        return jnp.asarray(self.guess, float) + jnp.asarray(sd, float) * standard

    def at(self, theta: Float[Array, " parameter"], x: Float[Array, ""]) -> Float[Array, ""]:
        value = jnp.asarray(self.function(x, self.parameters.constrain(theta, 0)), float)
        if value.shape:
            raise ValueError(
                f"Law: around gives an array of shape {value.shape} for one input; it must give one number"
            )
        return value

    def log_prior(self, standard: Float[Array, " parameter"]) -> Float[Array, ""]:
        """What the priors of the parameters have beside the standard normal of `standard`."""
        theta, more = self.theta(standard), jnp.zeros(())
        for i, density in enumerate(self.parameters.log_densities):
            if density is not None:
                more = more + density(theta[i]) + 0.5 * standard[i] ** 2
        return more

    def named(self, standard: Float[Array, "*batch parameter"]) -> dict[str, Array]:
        """Physical values of the parameters, by name."""
        values = self.parameters.to_physical(self.theta(standard))
        return {name: values[..., i] for i, name in enumerate(self.parameters.names)}

    def value_and_shapes(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """At places x with parameters at their guesses: the form, and its derivatives (place, parameter) in what is standard
        normal of its parameters; zero where the form is no number."""

        def value(standard: Array, x: Array) -> Array:
            return self.at(self.theta(standard), x)

        none, where = jnp.zeros(len(self.guess)), jnp.asarray(x, float)
        found = jax.vmap(value, (None, 0))(none, where), jax.vmap(jax.jacfwd(value), (None, 0))(none, where)
        form, shapes = (np.asarray(part, float) for part in found)
        return tuple(np.where(np.isfinite(part), part, 0.0) for part in (form, shapes))  # type: ignore[return-value]
