"""What a built-in problem carries: the problem, the truth behind its synthetic data, and how those are observed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd
from jax.typing import ArrayLike
from jaxtyping import Array

from ..data import Observations
from ..diagnose import Truth
from ..equations import Equation, ObservationIndex, unit_laws
from ..laws import Known


@dataclass(frozen=True, eq=False)
class BuiltIn:
    """A problem that ships with closura.

    `laws` are the true closures, `ranges` the intervals on which a learned one is judged; `mu` and `tau` (variances) the
    true population on the unconstrained scale; `places` draws where each of so many systems is observed, (observation, axis).
    """

    name: str
    shows: str
    problem: Equation
    mu: np.ndarray
    tau: np.ndarray
    laws: Mapping[str, Callable[..., ArrayLike]]
    ranges: Mapping[str, tuple[float, float]]
    places: Callable[[np.random.Generator, int], list[np.ndarray]]
    sigma: float
    systems: int = 20

    def oracle(self) -> Equation:
        """The problem with its true law known."""
        known = {name: Known(self.laws[name], spec.inputs) for name, spec in self.problem.closures.items()}
        return self.problem.with_closure(known["f"] if self.problem.single else known)

    def simulate(self, systems: int | None = None, seed: int = 0) -> tuple[Observations, Truth]:
        """Noisy observations of systems drawn from the true population, and that truth."""
        count = self.systems if systems is None else systems
        if count < 1:
            raise ValueError(f"systems={count}: at least one system is needed")
        key_theta, key_noise = jr.split(jr.key(seed))
        theta = self.mu + np.sqrt(self.tau) * np.asarray(jr.normal(key_theta, (count, len(self.mu))), float)
        empty, truth_problem = self._unseen(count, seed), self.oracle()
        forward, where = truth_problem.solver(empty)
        laws = unit_laws(truth_problem.closures)

        def predict(theta: Array, where: ObservationIndex, system: Array) -> Array:
            return forward.predict(theta, forward.prepare_context(laws), where, system)

        clean = jax.jit(jax.vmap(predict))(jnp.asarray(theta, float), where, jnp.arange(count))
        noisy = self.problem.noise.sample(key_noise, clean, jnp.asarray(self.sigma, float))
        value = np.where(empty.mask, np.asarray(noisy, float), 0.0)
        return replace(empty, value=value), Truth(theta, self.mu, self.tau, self.laws, self.ranges)

    def _unseen(self, count: int, seed: int) -> Observations:
        """Where each system is observed, with nothing seen yet."""
        places = self.places(np.random.default_rng([seed, 1]), count)
        rows = np.concatenate([np.c_[np.full(len(at), k + 1), at] for k, at in enumerate(places)])
        frame = pd.DataFrame(rows, columns=["system", *self.problem.axes]).astype({"system": int})
        frame = frame.assign(**dict.fromkeys(self.problem.observed, 0.0), sigma=self.sigma)
        return Observations.from_frame(frame, axes=self.problem.axes, allow_duplicates=True)
