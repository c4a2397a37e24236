"""What a built-in problem carries: the problem, the truth behind its synthetic data, and how those are observed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ..diagnose import Truth
from ..forward import Where, solver
from ..problem import ODE, Known, Observations, unit_scaling


@dataclass(frozen=True, eq=False)
class BuiltIn:
    """A problem that ships with closura.

    `laws` are the true closures, `ranges` the intervals on which a learned one is judged; `mu` and `tau` (variances) the
    true population on the unconstrained scale; `times` when each system is observed.
    """

    name: str
    shows: str
    problem: ODE
    mu: np.ndarray
    tau: np.ndarray
    laws: Mapping[str, Callable[..., Any]]
    ranges: Mapping[str, tuple[float, float]]
    times: np.ndarray
    sigma: float
    systems: int = 20

    def oracle(self) -> ODE:
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
        shape = (count, len(self.times))
        empty = Observations(
            systems=tuple(str(k + 1) for k in range(count)),
            quantities=self.problem.observed,
            time=np.broadcast_to(self.times, shape).copy(),
            quantity=np.zeros(shape, np.int32),
            value=np.zeros(shape),
            sigma=np.full(shape, self.sigma),
            mask=np.ones(shape, bool),
        )
        truth_problem = self.oracle()
        forward, where = solver(truth_problem, empty)
        laws = {name: spec.build(jr.key(0), unit_scaling(spec.inputs)) for name, spec in truth_problem.closures.items()}

        def predict(theta: Any, where: Where) -> Any:
            return forward.predict(theta, laws, where)

        clean = jax.jit(jax.vmap(predict))(jnp.asarray(theta, float), where)
        noise = self.sigma * jr.normal(key_noise, shape)
        value = np.asarray(clean + noise, float)
        data = Observations(empty.systems, empty.quantities, empty.time, empty.quantity, value, empty.sigma, empty.mask)
        return data, Truth(theta, self.mu, self.tau, self.laws, self.ranges)
