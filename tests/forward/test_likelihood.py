"""Laws that all chains share or each has its own, scales of chains or of systems: the same as one after the other."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd
import pytest

import closura as cl
from closura.equations import align
from closura.forward import _likelihood, likelihood
from closura.laws import Range, Scaling, prepare

pytestmark = pytest.mark.usefixtures("float64", "hardly_optimised")
CHAINS, SYSTEMS = 3, 2


def spring(**options):
    return cl.ODE(
        lambda t, s, p, f: (s.v, -p.k * s.u - f(s.v)),
        state=("u", "v"),
        parameters={"k": cl.Positive(guess=4.0), "u0": cl.Real(guess=1.0)},
        initial=lambda p: (p.u0, 0.5),
        span=(0.0, 2.0),
        dt=0.1,
        closure=cl.MLP(width=4, depth=1),
        observed=("u", "v"),
        **options,
    )


def target(**options):
    random = np.random.default_rng(0)
    table = pd.DataFrame({"system": np.repeat(["a", "b"], 5), "time": np.tile(0.4 * np.arange(1, 6), 2)})
    table = table.assign(u=random.normal(size=10), v=random.normal(size=10))
    table.loc[7:, "v"] = np.nan
    return likelihood(*align(spring(**options), cl.Observations.from_frame(table)))


def law(seed):
    built = spring().closures["f"].build(jr.key(seed), Scaling(jnp.zeros(1), jnp.ones(1), jnp.ones(())))
    shaken = jax.tree.map(lambda a: a + 0.3 * jr.normal(jr.key(seed), a.shape) if eqx.is_inexact_array(a) else a, built)
    return prepare({"f": shaken}, {"f": Range(-3 * jnp.ones(1), 3 * jnp.ones(1))})


def stacked(laws, *shape):
    arrays, rest = zip(*(eqx.partition(one, eqx.is_array) for one in laws))
    return eqx.combine(jax.tree.map(lambda *a: jnp.stack(a).reshape(*shape, *a[0].shape), *arrays), rest[0])


def alike(one, other):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12), one, other)


def everything(model, theta, context, own=None, axes=0):
    """All that is asked of a likelihood, the chain axis first."""
    predicted, jacobian = model.linearise(theta, context, own, axes)
    found = model.evaluate(theta, context, own, axes), model.values(theta, context, own, axes)
    return *found, predicted, jnp.moveaxis(jacobian, 0, -1), model.predict(theta, context, own=own, law_axes=axes)


@pytest.mark.parametrize(
    ("axes", "sigma", "blocked"),
    [(1, 0.3, True), (2, None, False)]
    + [pytest.param(*case, marks=pytest.mark.nightly) for case in ((1, None, True), (2, 0.3, False))],
)
def test_every_chain_may_have_laws_of_its_own(axes, sigma, blocked, monkeypatch):
    """Against a loop over chains, and over systems where each has its own."""
    model = target(sigma=sigma)
    theta = jnp.asarray([1.2, 0.8]) + 0.2 * jr.normal(jr.key(0), (CHAINS, SYSTEMS, 2))
    shape = (CHAINS, SYSTEMS)[:axes]
    laws = [law(seed) for seed in range(int(np.prod(shape)))]
    loop = eqx.filter_jit(lambda theta, context: everything(model, theta, context))
    if axes == 1:
        alone = [loop(theta[c : c + 1], laws[c]) for c in range(CHAINS)]
    else:
        parts = [[loop(theta[c : c + 1], laws[SYSTEMS * c + s]) for s in range(SYSTEMS)] for c in range(CHAINS)]
        one_each = lambda *a: jnp.stack([part[:, s] for s, part in enumerate(a)], axis=1)  # noqa: E731
        alone = [jax.tree.map(one_each, *of_chain) for of_chain in parts]
    expected = jax.tree.map(lambda *a: jnp.concatenate(a), *alone)
    if blocked:
        monkeypatch.setattr(_likelihood, "block_size", lambda solves, bytes_each: 2)
    every = eqx.filter_jit(lambda theta, own: everything(model, theta, law(99), own, axes))
    found = every(theta, stacked(laws, *shape))
    alike(found, expected)
    assert np.abs(np.diff(np.asarray(found[-1]), axis=0)).max() > 0.01  # the laws differ


@pytest.mark.parametrize("noise", ["normal", "student"])
def test_scales_may_be_of_each_system(noise):
    model, context = target(noise=noise), law(0)
    theta = jnp.asarray([1.2, 0.8]) + 0.2 * jr.normal(jr.key(0), (CHAINS, SYSTEMS, 2))
    log_scale = jr.normal(jr.key(1), (CHAINS, SYSTEMS, 2))
    found, values = jax.jit(lambda t: (model.evaluate(t, context), model.values(t, context)))(theta)
    each = [model.loglik_and_grad(found, log_scale[:, s]) for s in range(SYSTEMS)]
    expected = [jnp.stack([part[i][:, s] for s, part in enumerate(each)], axis=1) for i in (0, 1)]
    alike(model.loglik_and_grad(found, log_scale), tuple(expected))
    alike(model.loglik(values, log_scale), expected[0])


@pytest.mark.parametrize("noise", ["normal", "student"])
@pytest.mark.parametrize("sigma", [0.3, None], ids=["stated", "inferred"])
def test_blank_is_what_a_failed_solve_leaves(noise, sigma):
    model = target(noise=noise, sigma=sigma)
    theta = jnp.full((CHAINS, SYSTEMS, 2), jnp.nan)
    blank, failed = model.blank(theta), jax.jit(lambda t: model.evaluate(t, law(0)))(theta)
    assert jax.tree.map(jnp.shape, blank) == jax.tree.map(jnp.shape, failed)
    log_scale = jnp.zeros((CHAINS, 2))
    alike(model.loglik_and_grad(blank, log_scale), model.loglik_and_grad(failed, log_scale))
    assert np.all(model.loglik_and_grad(blank, log_scale)[0] == -jnp.inf)
