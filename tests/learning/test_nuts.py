"""The whole sampler against an independent one: BlackJAX NUTS on three mass-dampers with the law known."""

import blackjax
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from closura.equations import unit_scaling
from closura.forward import likelihood
from closura.learning import Run, Settings
from closura.population import Phi, population
from closura.problems import mass_damper

pytestmark = pytest.mark.nightly
NUTS_CHAINS, NUTS_DRAWS = 4, 1500


def nuts(problem, data):
    target, prior = likelihood(problem, data), population(problem.parameters)
    laws = {name: spec.build(jr.key(0), unit_scaling(1)) for name, spec in problem.closures.items()}
    systems, _count = len(data.systems), len(problem.parameters)

    @jax.custom_jvp
    def loglik(theta):
        return jnp.sum(target.evaluate(theta[None], laws)[0])

    loglik.defjvp(lambda p, t: _value_and_tangent(target, laws, p[0], t[0]))

    def log_density(x):
        phi = Phi(x["mu"], x["log_tau"])
        return loglik(x["theta"]) + jnp.sum(prior.log_prior(x["theta"], phi)[0]) + prior.log_hyperprior(phi)

    def one_chain(key, start):
        key_warm, key_run = jr.split(key)
        tempering = blackjax.window_adaptation(blackjax.nuts, log_density)
        (state, tuned), _ = tempering.run(key_warm, start, num_steps=700)
        kernel = blackjax.nuts(log_density, **tuned).step

        def one(state, key):
            state, _ = kernel(key, state)
            return state, state.position

        return jax.lax.scan(one, state, jr.split(key_run, NUTS_DRAWS))[1]

    # Near the data's own solution, so that no chain starts in an alias of the frequency.
    start = {
        "theta": jnp.asarray(mass_damper.simulate(systems, 11)[1].theta, float),
        "mu": prior.mean,
        "log_tau": prior.log_variance,
    }
    starts = jax.tree.map(lambda a: a + 0.05 * jr.normal(jr.key(5), (NUTS_CHAINS, *a.shape)), start)
    draws = jax.jit(jax.vmap(one_chain))(jr.split(jr.key(2), NUTS_CHAINS), starts)
    return np.concatenate(
        [np.asarray(a).reshape(NUTS_CHAINS, NUTS_DRAWS, -1) for a in (draws["theta"], draws["mu"], draws["log_tau"])],
        -1,
    )


def _value_and_tangent(target, laws, theta, direction):
    """The score closura computes by forward mode, handed to NUTS as the derivative."""
    value, score = target.evaluate(theta[None], laws)
    return jnp.sum(value), jnp.sum(score[0] * direction)


def effective(draws):
    from arviz_stats.base import array_stats

    flat = draws.reshape(*draws.shape[:2], -1)
    return np.array(
        [array_stats.ess(flat[..., i], chain_axis=0, draw_axis=1, method="mean") for i in range(flat.shape[-1])]
    )


def test_posterior_agrees_with_nuts():
    data, _ = mass_damper.simulate(3, 11)
    problem = mass_damper.oracle()
    run = Run(problem, data, Settings(iterations=300, tune=200, draws=400, thin=4, extend=0, devices=1))
    while not run.finished:
        run.advance()
    ours = np.concatenate([a.reshape(*a.shape[:2], -1) for a in (run.theta(), *run.phi()[:2])], -1)
    theirs = nuts(problem, data)
    n_ours, n_theirs = effective(ours), effective(theirs)
    assert n_ours.min() > 2000
    assert n_theirs.min() > 400
    spread = theirs.std(axis=(0, 1))
    error = spread * np.sqrt(1 / n_ours + 1 / n_theirs)
    z = (ours.mean(axis=(0, 1)) - theirs.mean(axis=(0, 1))) / error
    assert np.abs(z).max() < 4
    # Standard deviations within what their effective sizes allow (relative error about 1 / sqrt(2 n) for a Gaussian).
    ratio = ours.std(axis=(0, 1)) / spread
    assert np.abs(np.log(ratio) / np.sqrt(0.75 / n_ours + 0.75 / n_theirs)).max() < 5
