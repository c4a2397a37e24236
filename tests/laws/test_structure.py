"""Structure holds to the last bit wherever a law is realised; exports have tests of their own, over the same registry."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from laws import CONTRADICTIONS, FLAGS, LAWS, STRUCTURES, network_and_table, points, random_law, span, tabulate

import closura as cl
from closura.laws import Structure, _structure as stated

RANGES = {"around zero": (-2.0, 3.0), "off zero": (1.0, 3.0), "up to zero": (-3.0, 0.0)}
EVERY = pytest.mark.parametrize(
    ("inputs", "flags"), STRUCTURES, ids=lambda v: "-".join(v) if isinstance(v, tuple) else str(v)
)


def test_the_table_of_contradictions():
    """What can be had together, stated here and there."""
    assert set(stated.FLAGS) == set(FLAGS)
    for inputs, count in itertools.product((1, 2), range(1, 7)):
        for flags in itertools.combinations(FLAGS, count):
            structure = Structure(inputs, **dict.fromkeys(flags, True))
            assert structure.promised == flags
            if (inputs, flags) in STRUCTURES:
                structure.check()
            else:
                with pytest.raises(ValueError, match="contradict each other; choose one"):
                    structure.check()


@EVERY
def test_promises_hold_exactly(inputs, flags):
    x = points(inputs)
    for seed, (place, (low, high)), which in itertools.product((0, 1), RANGES.items(), (0, 1)):
        law, range_ = random_law(seed=seed, inputs=inputs, **dict.fromkeys(flags, True)), span(low, high, inputs)

        def f(x, law=law, range_=range_, which=which):
            return np.asarray(network_and_table(law, range_, x)[which])

        broken = [flag for flag in flags if not LAWS[flag](f, x)]
        assert not broken, f"{('network', 'table')[which]}, range {place}: not {', '.join(broken)}"
    assert np.std(f(x)) > 0.1, "a constant keeps promises for nothing"


@EVERY
def test_a_small_change_of_a_law_keeps_symmetry_and_zeros(inputs, flags):
    """Exactly; signs and growth do not restrict it."""
    structure, x = Structure(inputs, **dict.fromkeys(flags, True)), points(inputs)
    change = random_law(inputs=inputs, size=0.3)
    changed = jax.jit(jax.vmap(lambda p: structure.perturbation(change, tuple(p))))

    def f(x):
        return np.asarray(changed(x))

    equalities = {flag: LAWS[flag] for flag in ("odd", "even", "zero_at_origin")}
    equalities["dissipative"] = lambda f, x: not np.any(f(x * (np.arange(inputs) > 0)))
    assert not [flag for flag in flags if flag in equalities and not equalities[flag](f, x)]
    free = set(flags) <= {"positive", "increasing"}
    assert np.allclose(f(x), network_and_table(change, span(-2.0, 3.0, inputs), x)[0], rtol=1e-4) == free
    assert np.std(f(x)) > 0.01, "no change keeps promises for nothing"


@pytest.mark.parametrize("flag", FLAGS)
def test_laws_can_be_broken(flag):
    """A plain network keeps none of the promises, so the law test tells them apart."""
    plain = random_law(seed=1)
    assert not LAWS[flag](lambda x: np.asarray(network_and_table(plain, span(-2.0, 3.0), x)[0]), points(1))


@pytest.mark.parametrize("pair", CONTRADICTIONS, ids=lambda pair: "-".join(sorted(pair)))
def test_contradictions_are_refused(pair):
    with pytest.raises(ValueError, match="contradict each other; choose one"):
        cl.MLP(**dict.fromkeys(pair, True))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("flags", [("odd",), ("zero_at_origin",), ("increasing", "dissipative")])
def test_the_gradient_at_the_origin_survives(flags):
    """Values are made exactly zero there; derivatives must not be."""
    law = random_law(size=0.5, **dict.fromkeys(flags, True))
    for f in (law, tabulate(law, span(-2.0, 3.0))):
        value, forward, reverse = eqx.filter_jit(lambda x, f=f: (f(x), jax.jacfwd(f)(x), jax.grad(f)(x)))(jnp.zeros(()))
        right, left = (float(eqx.filter_jit(f)(jnp.asarray(x))) for x in (1e-5, -1e-5))
        assert float(value) == 0.0
        assert float(forward) == pytest.approx((right - left) / 2e-5, rel=1e-4)
        assert float(reverse) == pytest.approx(float(forward))
