"""What every kernel promises, over a list of all of them: what it moves, and that the cache is of where the chains stand."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd
import pytest
from sizes import FEW
from targets import ByHand

import closura as cl
from closura import sampling
from closura.learning import Run, SettingsError, make_settings
from closura.sampling import (
    DEPENDS_ON,
    DifferentialEvolution,
    JointBlock,
    Kernel,
    Mala,
    MultiTry,
    NoiseGibbs,
    PopulationGibbs,
    SharedBlock,
    SomeSystems,
    SystemBlocks,
    sweep,
)

pytestmark = pytest.mark.usefixtures("hardly_optimised")

SHARED = (False, True)
KERNELS = [
    Mala(SystemBlocks()),
    Mala(SystemBlocks(SHARED), "frozen"),
    Mala(SharedBlock(SHARED)),
    PopulationGibbs(),
    NoiseGibbs(),
    DifferentialEvolution(SHARED),
    MultiTry(SHARED),
    SomeSystems(Mala(SystemBlocks(SHARED), "frozen"), (0, 2)),
]


def decay(**options):
    """u' = -k u, one k for all, one u0 for each system."""
    return cl.ODE(
        lambda t, state, p: -p.k * state.u,
        state="u",
        parameters={"u0": cl.Real(2.0), "k": cl.Positive(0.5, shared=True)},
        initial=lambda p: p.u0,
        span=(0.0, 4.0),
        dt=0.5,
        observed="u",
        **options,
    )


def table(systems=3, seed=0):
    random, time = np.random.default_rng(seed), np.arange(0.5, 4.1, 0.5)
    rows = [
        pd.DataFrame({"system": k, "time": time, "u": u0 * np.exp(-0.5 * time) + 0.1 * random.normal(size=len(time))})
        for k, u0 in enumerate(random.normal(2.0, 0.3, systems))
    ]
    return cl.Observations.from_frame(pd.concat(rows))


@pytest.fixture(scope="module")
def run():
    run = Run(decay(), table(), make_settings(FEW))
    run._refresh()
    return run


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: f"{kernel.name}-{type(kernel).__name__}")
def test_a_kernel_moves_what_it_says_and_keeps_the_cache_true(run, kernel):
    before, posterior = run.state.chains, dataclasses.replace(run.posterior, temperature=1e-3)  # many are accepted
    tuning = kernel.tune(kernel.init(before), before, posterior)

    @jax.jit
    def moved(keys, chains):
        after, _ = kernel.step(keys, chains, tuning, posterior)
        return after, posterior.refresh(after)

    after, fresh = jax.device_get(moved(jr.split(jr.key(3), 2), before))
    for field in ("theta", "phi", "log_sigma", "law"):
        old, new = jax.tree.leaves(getattr(before, field)), jax.tree.leaves(getattr(after, field))
        same = all(np.array_equal(a, b) for a, b in zip(old, new))
        assert same == (field not in kernel.moves), field
    assert set(DEPENDS_ON) == {"theta", "law"}
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), after.cache, fresh.cache)


def test_a_sweep_is_a_list():
    """Order and number are the user's: kernels run one after the other, each with a tuning of its own."""
    said = []

    class Says(Kernel):
        name: str  # type: ignore[misc]
        moves = ()

        def step(self, keys, chains, tuning, posterior):
            said.append(self.name)
            return chains, None

    kernels = [Says("b"), Says("a")]
    chains = sampling.Chains(jnp.zeros((1, 4, 1, 1)))
    _, tuning, info = sweep(kernels, jr.split(jr.key(0), 1), chains, {"a": 1, "b": 2}, ByHand(None))
    assert said == ["b", "a"]
    assert tuning == {"a": 1, "b": 2}
    assert info.acceptance.shape == info.laws.acceptance.shape == (1, 4, 0)


def test_moves_of_laws_are_told_apart():
    """Of three blocks of theta and one law, the law's alone."""

    class Tells(Kernel):
        name: str  # type: ignore[misc]
        moves: tuple = eqx.field(static=True)  # type: ignore[misc]
        blocks: int = eqx.field(static=True)

        def step(self, keys, chains, tuning, posterior):
            told = jnp.full((1, 4, self.blocks), 1.0 / self.blocks)
            return chains, sampling.Info(told, told > 0.5, told)

    kernels = [Tells("theta", ("theta",), 3), Tells("law f", ("law", "theta"), 1)]
    tuning = {"theta": (), "law f": ()}
    _, _, info = sweep(kernels, jr.split(jr.key(0), 1), sampling.Chains(jnp.zeros((1, 4, 1, 1))), tuning, ByHand(None))
    assert info.finite.tolist() == [[[False, False, False, True]] * 4]
    assert info.laws.finite.tolist() == [[[True]] * 4]


def test_a_list_of_kernels_is_a_setting():
    names = ["population", "theta", "shared", "noise"]
    run = Run(decay(), table(), make_settings(FEW | {"sampler": names}))
    assert [kernel.name for kernel in run.setup.sweep] == names
    own = [Mala(SystemBlocks(SHARED), step_size=0.1), "shared", PopulationGibbs(), "noise"]
    settings = make_settings(FEW | {"sampler": own})
    assert settings.model_dump()["sampler"] == ["theta", "shared", "population", "noise"]
    run = Run(decay(), table(), settings)
    while not run.finished:
        run.advance()
    assert np.isfinite(run.theta()).all()
    assert np.ptp(run.theta()) > 0
    assert run.setup.moved_blocks(run.state.tuning).tolist() == [True] * 4  # three systems, and what they share


@pytest.mark.parametrize(
    ("sampler", "said"),
    [
        (["theta", "noise"], "moves the population: add 'population'"),
        (["differential_evolution", "population", "noise"], "moves the parameters of the systems: add 'theta'"),
        (["independence", "population", "noise"], "moves the parameters of the systems: add 'theta'"),
        (["theta", "population"], "moves the size of the noise: add 'noise'"),
        (["population", "noise"], "moves the parameters of the systems: add 'theta'"),
        (["theta", "theta", "population", "noise"], "theta is there twice"),
        (["nuts"], "'nuts' is no kernel; kernels are theta, independence, shared"),
    ],
)
def test_a_list_that_cannot_work_is_refused(sampler, said):
    with pytest.raises(SettingsError, match=said):
        Run(decay(), table(), make_settings(FEW | {"sampler": sampler}))


def test_what_nobody_shares_has_no_kernel():
    problem = decay()
    problem.parameters = type(problem.parameters)({"u0": cl.Real(2.0), "k": cl.Positive(0.5)})
    with pytest.raises(SettingsError, match="no parameter is shared"):
        Run(problem, table(), make_settings(FEW | {"sampler": ["theta", "shared", "population", "noise"]}))


def test_step_sizes_stay_within_bounds():
    """Where nothing is ever rejected a step would grow for ever, and with it what a later rejection has to undo."""
    kernel = Mala(SystemBlocks())
    chains = sampling.Chains(jnp.zeros((1, 8, 1, 2)))
    tuning = kernel.init(chains)
    info = sampling.Info(jnp.ones((1, 8, 1)), jnp.ones((1, 8, 1), bool), jnp.ones((1, 8, 1)))
    for _ in range(2000):
        tuning = kernel.adapt(tuning, info, 0.1)
    assert float(jnp.exp(tuning.log_step).max()) <= 10.0


def test_the_joint_block_moves_everything():
    problem = decay(sigma=0.1)
    problem.parameters = type(problem.parameters)({"u0": cl.Real(2.0), "k": cl.Positive(0.5)})
    run = Run(problem, table(), make_settings(FEW | {"chains": 48, "blocks": "joint"}))
    run._refresh()
    kernel = run.setup.sweep[0]
    assert isinstance(kernel.blocks, JointBlock)
    posterior, before = dataclasses.replace(run.posterior, temperature=1e-3), run.state.chains
    position = kernel.blocks.split(before)
    assert position.shape[-1] == 3 * 2 + 4
    back = kernel.blocks.join(before, position)
    jax.tree.map(np.testing.assert_array_equal, back, before)
    after, _ = jax.jit(lambda keys: kernel.step(keys, before, kernel.init(before), posterior))(jr.split(jr.key(0), 2))
    assert not np.array_equal(after.theta, before.theta)
    assert not np.array_equal(after.phi.mu, before.phi.mu)
