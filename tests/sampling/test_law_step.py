"""The move of a jump leaves the joint density of everything as it is, and gets from one width to another.

As in `test_law_move`: data are drawn anew before every sweep, and all that chains hold must stay distributed as the prior.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import lawmoves
import numpy as np
import pytest
from lawmoves import SIZE, Linear, from_prior, z_scores

from closura.laws import Law, Range
from closura.sampling import LawStep

SPEC = Law(nodes=9, jump=0.1)
PLACES = jnp.array([-0.9, -0.05, 0.15, 0.8])


@pytest.fixture(autouse=True)
def with_a_jump(monkeypatch):
    monkeypatch.setattr(Law, "size_priors", (SIZE, SIZE))
    frame = SPEC.frame(Range(jnp.array([-1.0]), jnp.array([1.0])), lawmoves.SCALING)
    for name, value in (("SPEC", SPEC), ("FRAME", frame), ("PLACES", PLACES), ("tunings", tunings)):
        monkeypatch.setattr(lawmoves, name, value)


def tunings(kernels, chains, shear):
    """As found from draws of the prior, of any length."""
    (kernel,) = kernels
    posterior = Linear(jnp.zeros(()), {"f": lawmoves.FRAME}, lawmoves.POPULATION)
    tuning = kernel.tune(kernel.init(chains), chains, posterior)
    return {kernel.name: tuning._replace(log_reach=jnp.zeros(1))}


def test_everything_stays_as_the_prior_has_it():
    z, accepted = z_scores([LawStep("f")])
    assert accepted[0] > 0.2
    assert np.abs(z).max() < 4.5


class Forgets(LawStep):
    """Takes any proposal for as likely as where it was, if it is finite."""

    def step(self, keys, chains, tuning, posterior):
        class Flat(Linear):
            def log_joint(self, chains, loglik):
                return 0.0 * super().log_joint(chains, loglik)

        flat = Flat(posterior.y, posterior.ranges, posterior.population)
        return super().step(keys, chains, tuning, flat)


def test_it_would_notice():
    z, _ = z_scores([Forgets("f")])
    assert np.abs(z).max() > 8


def test_the_smooth_part_takes_up_what_it_can():
    """Of a jump that becomes wide, at the nodes of the table."""
    chains = from_prior(jr.key(0))
    frame, kernel = lawmoves.FRAME, LawStep("f")
    follow = tunings([kernel], chains, 0)[kernel.name].follow[0]
    law = jax.tree.map(lambda a: a[0, 0], chains.law["f"])
    wider = law.with_weights(law.weights.at[1].add(2.0))
    before, after = (np.asarray(jax.vmap(one.beside(frame))(frame.axis.points())) for one in (law, wider))
    taken = wider.with_weights(wider.weights.at[sum(SPEC.ahead) :].add(follow @ (before - after)))
    at = jnp.asarray(frame.axis.points())[1:-1]
    f, without, with_it = (np.asarray(jax.vmap(one.prepare(frame))(at)) for one in (law, wider, taken))
    assert np.abs(without - f).max() > 0.01
    assert np.abs(with_it - f).max() < 0.5 * np.abs(without - f).max()
