"""Where predictions ask a law for more than data supported: which rows rely on it, and what is said of them."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..data import Observations
from ..equations import Equation, ForwardModel
from ..laws import FittedLaw, SolverLaws
from ._fleet import Fleet

SURVEYED = 16
OUTSIDE = 0.05  # share of calls outside the support that is worth a word; one in a hundred is by its definition
LawsAt = Callable[[np.ndarray], tuple[SolverLaws, int]]  # as `Fleet.laws`, at some of the draws


class Joint(NamedTuple):
    """Draws of everything a prediction depends on, which belong together: number i of each is of the same posterior draw.

    - `theta`: (draw, system, parameter), unconstrained; `laws`: as solvers call them, at some of the draws.
    - `log_sigma`: inferred sizes of noise, (draw, system or 1, quantity), or None.
    """

    theta: np.ndarray
    laws: LawsAt
    log_sigma: np.ndarray | None = None


class Survey(NamedTuple):
    """What some of the draws call each law with, (draw, system, time, call, input); and which calls count as beyond what data
    supported, or as outside the law's table, (draw, system, time, call)."""

    times: np.ndarray
    calls: dict[str, np.ndarray]
    unsupported: dict[str, Bool[np.ndarray, "draw system time call"]]
    untabulated: dict[str, Bool[np.ndarray, "draw system time call"]]
    after: float

    def extrapolates(self, at: np.ndarray | None, systems: int) -> np.ndarray:
        """(system, time): does the state at a time rely on a law where data did not support it? So it does where more than
        5 % of the calls up to then do, of any law. `at` are the times, None where nothing changes in time."""
        counted = self.times > self.after
        early = np.ones((1, counted.sum()), bool)
        if at is not None and len(self.times) > 1:
            early = self.times[counted] <= at[:, None] * (1 + 1e-6)
        share = np.zeros((systems, len(early)))
        for outside in self.unsupported.values():
            each = outside[:, :, counted].mean(axis=(0, 3))
            share = np.maximum(share, each @ early.T / np.maximum(1, early.sum(axis=1)))
        return np.broadcast_to(share > OUTSIDE, (systems, 1 if at is None else len(at)))


def survey(fleet: Fleet, problem: Equation, data: Observations, drawn: Joint, after: float = -np.inf) -> Survey:
    """Calls of 16 draws; those up to the time `after` count as supported."""
    closures = {name: law for name, law in fleet.closures.items() if law.learned or law.law.spec.per_chain}
    forward, _ = problem.solver(data)
    times = np.asarray(forward.call_times)
    if not closures:
        return Survey(times, {}, {}, {}, after)
    chosen = np.linspace(0, len(drawn.theta) - 1, min(SURVEYED, len(drawn.theta))).astype(int)
    laws, axes = drawn.laws(chosen)
    calls, outside = jax.device_get(_law_inputs(forward, jnp.asarray(drawn.theta[chosen], float), laws, axes))
    shaped = {
        name: calls[name].reshape(*calls[name].shape[:2], len(times), -1, calls[name].shape[-1]) for name in closures
    }
    asked = {name: law for name, law in closures.items() if law.learned and law.support is not None}
    unsupported = {name: ~np.asarray(law.supported(*np.moveaxis(shaped[name], -1, 0))) for name, law in asked.items()}
    beyond = {name: outside[name].reshape(shaped[name].shape[:-1]) > 0 for name in asked if outside[name] is not None}
    return Survey(times, shaped, unsupported, beyond, after)


@eqx.filter_jit
def _law_inputs(
    forward: ForwardModel, theta: Array, laws: SolverLaws, axes: int
) -> tuple[dict[str, Float[Array, "draw system call input"]], dict[str, Float[Array, "draw system call"] | None]]:
    """What laws are called with, and which calls lie outside their tables."""

    def of_system(theta: Array, system: Array, laws: SolverLaws) -> tuple[dict[str, Array], dict[str, Array | None]]:
        calls = forward.law_inputs(theta, laws, system)
        return calls, {name: laws[name].outside(inputs) for name, inputs in calls.items()}

    of_systems = jax.vmap(of_system, (0, 0, 0 if axes == 2 else None))
    return jax.vmap(of_systems, (0, None, 0 if axes else None))(theta, jnp.arange(theta.shape[1]), laws)


def remarks_on(found: Survey, fleet: Fleet, data: Observations) -> list[str]:
    """In words, which systems ask which law for more than data supported, and when first."""
    return [said for name in found.unsupported for said in _beyond(found, data, fleet.closures[name])]


def _beyond(found: Survey, data: Observations, law: FittedLaw) -> list[str]:
    assert law.support is not None
    counted = found.times > found.after
    outside = found.unsupported[law.name][:, :, counted]
    share = outside.mean(axis=(0, 2, 3)) if counted.any() else np.zeros(len(data.systems))
    far = np.argsort(-share)[: np.count_nonzero(share > OUTSIDE)]
    if not far.size:
        return []
    times = found.times[counted]
    told = [f"{data.systems[k]} ({share[k]:.0%} of its calls{_since(times, outside[:, k])})" for k in far[:3]]
    more = f" and {far.size - 3} more" if far.size > 3 else ""
    ends = ", ".join(
        f"{name} {low:.3g} to {high:.3g}" for name, low, high in zip(law.inputs, law.support.low, law.support.high)
    )
    said = (
        f"the law {law.name} is asked for more than data supported ({ends}) by {'; '.join(told)}{more}: there it is an "
        "extrapolation, and so are these predictions"
    )
    past = found.untabulated.get(law.name)
    beyond = 0.0 if past is None else float(past[:, :, counted].mean(axis=(0, 2, 3)).max())
    if beyond > OUTSIDE:
        said += f"; up to {beyond:.0%} of the calls lie even beyond its table, where it is a straight line: intervals are too narrow"
    return [said]


def _since(times: np.ndarray, outside: np.ndarray) -> str:
    """When most draws are outside for the first time; nothing where there are no times."""
    most = outside.any(axis=2).mean(axis=0) > 0.5
    return f", first at time {times[np.argmax(most)]:.4g}" if len(times) > 1 and most.any() else ""
