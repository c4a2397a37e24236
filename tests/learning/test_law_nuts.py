"""Runs that sample their laws, against an independent sampler: BlackJAX NUTS on the joint density of all that a chain holds.

Of parameters, population, laws on a grid of inputs, their sizes and that of the noise: means within four Monte Carlo errors,
standard deviations within 5 %, where the draws of both are worth 10,000 independent ones at least.
"""

import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from joint_nuts import InUnits, Joint, compare, nuts
from scipy.integrate import solve_ivp

import closura as cl
from closura.learning import Run, make_settings
from closura.problems import mass_damper

pytestmark = pytest.mark.nightly
SETTINGS = {"chains": 64, "groups": 2, "devices": 1, "iterations": 300, "chunk": 10, "tempering": 0.5, "tune": 400}
SETTINGS |= {"draws": 2400, "thin": 5, "extend": 0}
SYSTEMS, NODES, GRID = 3, 17, 9
CHAINS, DRAWS = 32, 900  # of NUTS
WORTH = 10_000


def finished(problem, data, **settings):
    run = Run(problem, data, make_settings(SETTINGS | settings, problem))
    while not run.finished:
        run.advance()
    return run


class Numbers:
    """What is compared, of the state of one chain: every scalar, and laws where data were."""

    def __init__(self, run):
        self.frames, seen = run.state.ranges, run.visited()
        self.grids = {name: jnp.linspace(*np.quantile(x[:, 0], [0.05, 0.95]), GRID) for name, x in seen.items()}
        self.shared = np.array(run.posterior.population.shared or (False,) * run.theta().shape[-1])

    def __call__(self, state):
        return jnp.concatenate([jnp.ravel(part) for part in self._parts(state).values()])

    def names(self, state):
        return [f"{name} {i}" for name, part in self._parts(state).items() for i in range(np.size(part))]

    def _parts(self, state):
        parts = {"theta": state.theta[:, ~self.shared], "shared": state.theta[0, self.shared]}
        parts |= {"mu": state.phi.mu, "log tau": state.phi.log_tau}
        if state.phi.correlation is not None:
            parts["correlation"] = state.phi.correlation
        if state.log_sigma is not None:
            parts["log sigma"] = state.log_sigma
        for name, law in state.law.items():
            parts[f"log s2 of {name}"] = law.log_size
            parts[name] = jax.vmap(law.prepare(self.frames[name]))(self.grids[name])
        return parts


def ours(run, numbers):
    """Names, and kept draws (chain, draw, number)."""
    kept = jax.tree.map(jnp.asarray, run.kept)
    names = numbers.names(jax.tree.map(lambda a: a[0, 0], kept))
    return names, np.asarray(jax.jit(jax.vmap(jax.vmap(numbers)))(kept), np.float64)


def check(run, target, numbers, theirs):
    """Kept draws of a run against those of NUTS on a target, where `theirs(tree)` are the same numbers."""
    names, found = ours(run, numbers)
    draws, steps, diverged = nuts(target, theirs, CHAINS, DRAWS)
    comparison = compare(names, found, draws)
    print(f"\n{steps:.1f} steps a draw, {diverged} of {CHAINS * DRAWS} diverged\n{comparison}")
    assert comparison.effective.min() > WORTH
    assert np.abs(comparison.z).max() < 4
    assert np.abs(comparison.ratio - 1).max() < 0.05


def check_run(run):
    joint, numbers = Joint(run), Numbers(run)
    target = InUnits(joint.log_density, joint.draws(run.kept), run.state.ranges)
    check(run, target, numbers, lambda tree: numbers(joint.chains(tree)))


@pytest.fixture(scope="module")
def oscillators():
    """Parameters, population, law and its sizes."""
    data, _ = mass_damper.simulate(SYSTEMS, 0)
    return finished(mass_damper.problem.with_closure(cl.Law(nodes=NODES)), data)


def test_mass_dampers(oscillators):
    check_run(oscillators)


def test_correlated_parameters(oscillators):
    """A full covariance, of the same systems."""
    check_run(finished(oscillators.problem, oscillators.data, population="full"))


def simulated(starts, force, sigma):
    """Noisy positions of oscillators u'' = force(t, u, v), one for each start (u0, v0)."""
    random, times, tables = np.random.default_rng(4), 0.5 * np.arange(17), []
    for k, start in enumerate(starts):
        found = solve_ivp(lambda t, y: (y[1], force(t, *y)), (0.0, 8.0), start, t_eval=times, rtol=1e-6)
        tables.append(pd.DataFrame({"system": k, "time": times, "u": found.y[0] + sigma * random.normal(size=17)}))
    return cl.read_table(pd.concat(tables))


def oscillator(physics, **options):
    start = {
        "u0": cl.Real(guess=0.5, width=1.0, spread=1.0, spread_width=1.0),
        "v0": cl.Real(guess=1.0, width=1.0, spread=1.0, spread_width=1.0),
    }
    return cl.ODE(
        physics,
        state=("u", "v"),
        initial=lambda p: (p.u0, p.v0),
        span=(0.0, 8.0),
        dt=0.1,
        integrator=cl.Leapfrog(),
        observed="u",
        **options | {"parameters": options.get("parameters", {}) | start},
    )


STARTS = [(0.8, 1.0), (-1.2, 2.5), (0.3, -0.5)]


def test_a_shared_stiffness_and_unknown_noise():
    problem = oscillator(
        lambda t, y, p, f: (y.v, 10 * jnp.sin(t) - f(y.v) - p.k * y.u),
        parameters={"k": cl.Positive(guess=3.0, width=0.3, shared=True)},
        closure=cl.Law(nodes=NODES),
    )
    data = simulated(STARTS, lambda t, u, v: 10 * np.sin(t) - 0.08 * v - 0.08 * v**3 - 5 * u, 0.15)
    run = finished(problem, data, draws=4000)
    assert run.log_sigma() is not None
    assert run.posterior.population.shared == (True, False, False)
    check_run(run)


def test_two_laws():
    """Damping, and what a spring has beside its linear part; both odd, else a constant could go from one to the other."""
    problem = oscillator(
        lambda t, y, p, f: (y.v, 10 * jnp.sin(t) - f.damping(y.v) - 4 * y.u - f.spring(y.u)),
        closure={"damping": cl.Law(odd=True, nodes=NODES), "spring": cl.Law(odd=True, nodes=NODES)},
        sigma=0.15,
    )
    data = simulated(STARTS, lambda t, u, v: 10 * np.sin(t) - 0.08 * v - 0.08 * v**3 - 4 * u - 0.3 * u**3, 0.15)
    check_run(finished(problem, data, draws=1600))


# A density written once more ------------------------------------------------------------------------------------------


class OfFunctions:
    """The posterior of the mass-dampers from their equation and the page on the method alone: nothing of closura's.

        g(z) = 3 (p0 + p1 z + p2 z^2 / 2) + s W(z) + r M(z),   f(v) = unit g((v - center) / scale),   p_i ~ N(0, 1)
        log s^2 ~ N(2, 1.5^2),   log r^2 ~ N(log 0.08^2, 1.5^2)

    W is the Wiener process integrated twice, from zero to either side, M a Matern process (5/2, length 1/4). Of their values at
    the nodes (W is zero at one) the directions of largest variance are kept, a quarter and two thirds as many as there are
    nodes, and between nodes the law is the cubic with the gradients expected there. Where the nodes are, and the units, are the
    run's. The law's coordinates here are a = (p, s xi, r zeta).
    """

    def __init__(self, run):
        frame = run.state.ranges["f"]
        self.center, self.scale, self.unit = (float(np.ravel(x)[0]) for x in frame.scaling)
        self.low, count = float(frame.low[0]), frame.axis.nodes
        self.step = (float(frame.high[0]) - self.low) / (count - 1)
        z = (self.low + self.step * np.arange(count) - self.center) / self.scale
        z[np.argmin(np.abs(z))] = 0.0
        free = {_wiener: z[z != 0], _matern: z}
        self.counts = 3, count // 4, 2 * count // 3
        curves = [_largest(kernel, z, free[kernel], kept) for kernel, kept in zip(free, self.counts[1:])]
        powers = np.stack([z**0, z, z**2 / 2], axis=1), np.stack([0 * z, z**0, z], axis=1)
        self.value, self.gradient = (
            np.concatenate([3 * power, *parts], axis=1) for power, parts in zip(powers, zip(*curves))
        )
        self.gradient *= self.step / self.scale  # a step of the table
        self.observed = np.asarray(run.data.value, float)
        assert np.all(run.data.mask), "every system is seen at all times"

    def draws(self, run):
        """Those of the run in these coordinates."""
        frame, kept = run.state.ranges["f"], jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), run.kept)
        both, nodes = np.concatenate([self.value, self.gradient]), np.asarray(frame.nodes, float)
        to_here, left, *_ = np.linalg.lstsq(both, np.concatenate([nodes[:, 0], nodes[:, 1]]), rcond=None)
        assert np.all(left < 1e-8), "the same functions"
        law = {"a": kept.law["f"].weights @ to_here.T, "log_size": kept.law["f"].log_size}
        tree = {"theta": kept.theta, "mu": kept.phi.mu, "log_tau": kept.phi.log_tau, "laws": {"f": law}}
        return jax.tree.map(lambda x: jnp.asarray(x, float), tree)

    def frame(self):
        """Of a: of which precision 1 is, of which 1 / s^2 and of which 1 / r^2."""
        kind = np.repeat([0, 1, 2], self.counts)
        return SimpleNamespace(rigid=kind == 0, flexible=np.array([[1], [2]]) == kind)

    def law(self, a):
        value, gradient = self.value @ a, self.gradient @ a

        def f(v):
            place = (v - self.low) / self.step
            cell = jnp.clip(jnp.floor(place), 0, len(value) - 2).astype(int)
            w = jnp.clip(place - cell, 0.0, 1.0)
            left = (1 + 2 * w) * (1 - w) ** 2 * value[cell] + w * (1 - w) ** 2 * gradient[cell]
            right = w**2 * (3 - 2 * w) * value[cell + 1] + w**2 * (w - 1) * gradient[cell + 1]
            beyond = place - cell - w
            outside = beyond * jnp.where(beyond < 0, gradient[0], gradient[-1])
            return self.unit * (left + right + outside)

        return f

    def predicted(self, theta, a):
        """u at t = 0, 0.64, ..., 7.68 of all systems, by steps of 0.08: kick, drift, kick."""
        f, (k, u, v) = self.law(a), (jnp.exp(theta[:, 0]), theta[:, 1], theta[:, 2])

        def acceleration(t, u, v):
            return 10 * jnp.sin(t) - f(v) - k * u

        def step(carry, t, dt=0.08):
            u, v, before = carry
            half = v + 0.5 * dt * before
            u = u + dt * half
            v = half + 0.5 * dt * acceleration(t + dt, u, half)
            after = acceleration(t + dt, u, v)
            return (u, half + 0.5 * dt * after, after), u

        _, later = jax.lax.scan(step, (u, v, acceleration(0.0, u, v)), 0.08 * np.arange(96))
        return jnp.concatenate([u[None], later])[::8].T

    def log_density(self, tree):
        theta, mu, log_tau, law = tree["theta"], tree["mu"], tree["log_tau"], tree["laws"]["f"]
        total = jnp.sum((self.observed - self.predicted(theta, law["a"])) ** 2) / 0.15**2
        total += jnp.sum((theta - mu) ** 2 * jnp.exp(-log_tau) + log_tau)
        total += jnp.sum((mu - np.array([math.log(3.0), 0.5, 1.0])) ** 2 / np.array([0.1, 1.0, 1.0]))
        total += jnp.sum((log_tau - np.log([0.02, 1.0, 1.0])) ** 2 / np.array([0.4, 0.08, 0.08]))
        *_, w, m = self.counts
        trend, detail = law["log_size"]
        square = [jnp.sum(part**2) for part in jnp.split(law["a"], [3, 3 + w])]
        total += square[0] + square[1] * jnp.exp(-trend) + w * trend + square[2] * jnp.exp(-detail) + m * detail
        return -0.5 * (total + ((trend - 2) / 1.5) ** 2 + ((detail - 2 * math.log(0.08)) / 1.5) ** 2)


def _largest(kernel, z, free, count):
    """Value and gradient at z, of as many directions in which values at `free` vary most."""
    variance, direction = np.linalg.eigh(kernel(free, free)[0])
    weights = (direction / np.sqrt(variance))[:, -count:]
    return tuple(part @ weights for part in kernel(z, free))


def _matern(z, at):
    """The covariance of M(z), and of dM/dz, with M(at)."""
    away = z[:, None] - at
    u = np.sqrt(5) * np.abs(away) / 0.25
    return (1 + u + u**2 / 3) * np.exp(-u), -np.sign(away) * np.sqrt(5) / 0.25 * (u + u**2) / 3 * np.exp(-u)


def _wiener(z, at):
    """The covariance of W(z), and of dW/dz, with W(at)."""
    one, other = np.abs(z)[:, None], np.abs(at)[None]
    m, far = np.minimum(one, other), np.maximum(one, other)
    same = np.sign(z)[:, None] == np.sign(at)[None]
    value = m**3 * (10 * far**2 - 5 * far * m + m**2) / 120
    nearer = m**2 * (30 * far**2 - 20 * far * m + 5 * m**2)
    gradient = np.where(one < other, nearer, m**3 * (20 * far - 5 * m)) / 120
    return same * value, same * np.sign(z)[:, None] * gradient


def test_log_joint_is_that_of_functions(oscillators):
    """At every draw, but for a constant."""
    joint, by_hand, kept = Joint(oscillators), OfFunctions(oscillators), oscillators.kept
    one, other = joint.draws(kept), by_hand.draws(oscillators)
    found, expected = (
        np.asarray(jax.jit(jax.vmap(density))(draws), np.float64)
        for density, draws in ((joint.log_density, one), (by_hand.log_density, other))
    )
    apart = found - expected
    assert found.std() > 1
    away = np.abs(apart - np.median(apart))
    # Single draws were seen 0.015 and 0.14 off in single precision; why is not known.
    assert np.quantile(away, 0.9999) < 0.01
    assert away.max() < 0.1


def test_a_density_of_functions(oscillators):
    numbers, by_hand = Numbers(oscillators), OfFunctions(oscillators)

    def theirs(tree):
        law = tree["laws"]["f"]
        f = jax.vmap(by_hand.law(law["a"]))(numbers.grids["f"])
        return jnp.concatenate([tree["theta"].ravel(), tree["mu"], tree["log_tau"], law["log_size"], f])

    target = InUnits(by_hand.log_density, by_hand.draws(oscillators), {"f": by_hand.frame()})
    check(oscillators, target, numbers, theirs)
