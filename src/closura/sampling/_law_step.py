"""A move of what is sharp in a law: height and width of its jump.

    w' = w + reach L xi,      a' = a + C (step(x; w) - step(x; w'))

w are the coordinates of the jump, a those of the smooth part g, x the nodes of its table. C takes up what a smooth function can
of the change, so that the law as a whole is as it was but next to the jump: where data do not tell a jump from a steep part of
g, widths of all sizes are as likely, and steps that are short enough for all else would not get from one to another. Theta stays,
and the Jacobian is one.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..laws import SmoothLaw
from ..population import normal
from ._accept import Randomness, decide
from ._kernel import Kernel
from ._posterior import JointTarget, Target
from ._state import Chains, GroupKeys, Info, choose_fields, uniforms_by_group
from ._student import mostly_long

TARGET = 0.3  # acceptance
CLOSE = 0.02  # how closely g takes a change up, in units of the law
LEAST = 0.1  # of the sd of a coordinate, that is one before data


class LawStepTuning(NamedTuple):
    lower: Float[Array, "group jump jump"]
    follow: Float[Array, "group smooth node"]
    log_reach: Float[Array, " group"]


class LawStep(Kernel):
    """Moves the jump of the law `law`, its smooth part following."""

    law: str = eqx.field(static=True)

    moves = ("law",)
    learning = False

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"jump of {self.law}"

    def init(self, chains: Chains) -> LawStepTuning:
        law = chains.law[self.law]
        groups, jump, smooth = len(chains.theta), len(law.spec.step), law.weights.shape[-1] - sum(law.spec.ahead)
        lower = jnp.broadcast_to(jnp.eye(jump), (groups, jump, jump))
        return LawStepTuning(lower, jnp.zeros((groups, smooth, law.spec.nodes)), jnp.zeros(groups))

    def step(self, keys: GroupKeys, chains: Chains, tuning: LawStepTuning, posterior: Target) -> tuple[Chains, Info]:
        assert isinstance(posterior, JointTarget), "a law moves under a joint density"
        law, frame = chains.law[self.law], posterior.ranges[self.law]
        count = law.weights.shape[1]
        xi, short, *tests = uniforms_by_group(keys, (count, tuning.lower.shape[-1]), (count,), (count,), (count,))
        length = mostly_long(short) * jnp.exp(tuning.log_reach)[:, None]
        change = length[..., None] * jnp.einsum("gij,gcj->gci", tuning.lower, normal(xi))
        levels, jump, _ = law.spec.ahead
        weights = law.weights.at[..., levels : levels + jump].add(change)

        def at_nodes(law: SmoothLaw) -> Array:
            beside = law.beside(frame)
            assert beside is not None, "a law with a jump has one beside its table"
            return jax.vmap(beside)(frame.axis.points())

        before, after = (jax.vmap(jax.vmap(at_nodes))(one) for one in (law, law.with_weights(weights)))
        taken = jnp.einsum("gan,gcn->gca", tuning.follow, before - after)
        moved = law.with_weights(weights.at[..., sum(law.spec.ahead) :].add(taken))
        proposed = posterior.refresh(chains._replace(law=chains.law | {self.law: moved}))
        before, after = (
            posterior.log_joint(c, posterior.temperature * posterior.loglik(c)) for c in (chains, proposed)
        )
        finite = jnp.all(jnp.isfinite(posterior.loglik(proposed)), axis=-1)[..., None]
        random = Randomness(xi, *(jnp.log(test)[..., None] for test in tests))
        accept, info = decide(random, posterior, chains, proposed, (after - before)[..., None], finite, _sum)
        return choose_fields(accept[..., 0], proposed, chains, ("law", "cache")), info

    def adapt(self, tuning: LawStepTuning, info: Info, rate: Array | float) -> LawStepTuning:
        reach = tuning.log_reach + rate * (jnp.mean(info.acceptance, axis=(1, 2)) - TARGET)
        return tuning._replace(log_reach=jnp.clip(reach, -6.0, 1.0))

    def tune(self, tuning: LawStepTuning, draws: Chains, posterior: Target) -> LawStepTuning:
        assert isinstance(posterior, JointTarget), "a law moves under a joint density"
        law, frame = draws.law[self.law], posterior.ranges[self.law]
        levels, jump, _ = law.spec.ahead
        rows = np.searchsorted(np.asarray(frame.places), np.asarray(frame.axis.points()))
        at_nodes = np.asarray(frame.nodes[rows, 0], float) / CLOSE
        found = []
        for weights, sizes in zip(np.asarray(law.weights, float), np.asarray(law.log_size, float)):
            precision = np.asarray(frame.precision(jnp.asarray(sizes.mean(axis=0), float)), float)[
                sum(law.spec.ahead) :
            ]
            follow = np.linalg.solve(at_nodes.T @ at_nodes + np.diag(precision), at_nodes.T / CLOSE)
            varied = np.atleast_2d(np.cov(weights[:, levels : levels + jump].T)) + LEAST**2 * np.eye(jump)
            found.append((np.linalg.cholesky(varied), follow))
        by_group = [jnp.asarray(np.stack(part), float) for part in zip(*found)]
        return LawStepTuning._make([*by_group, tuning.log_reach])


def _sum(value: Array) -> Array:
    return jnp.sum(value, axis=-1, keepdims=True)
