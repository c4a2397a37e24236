"""Another equation is noticed, the same one is not, whatever the precision."""

import dataclasses

import jax
import pytest
from fields import CHANNEL, ROCK

import closura as cl
from closura.equations import same_equation


def decay(physics=lambda t, s, p, f: -p.k * s.u - f(s.u), initial=lambda p: 1.0, **changes):
    options = {"state": "u", "parameters": {"k": cl.Positive()}, "closure": cl.MLP(width=8), "span": (0.0, 1.0)}
    return cl.ODE(physics, initial=initial, observed="u", sigma=0.1, **options | changes)


def field(**changes):
    return cl.Evolution(**CHANNEL._stated | changes)


def rock(**changes):
    given = {"coefficient": ROCK.coefficient, "source": ROCK.source, "domain": ROCK.domain, "sigma": 0.1}
    return cl.Elliptic(**given | {"parameters": ROCK.parameters.kinds, "closure": cl.MLP(width=8)} | changes)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (decay(), decay(lambda t, s, p, f: -2 * p.k * s.u - f(s.u))),
        (decay(), decay(lambda t, s, p, f: -p.k * s.u - f(s.u) * s.u)),
        (decay(), decay(lambda t, s, p, f: -p.k * s.u - f(s.u) + 0.01 * t)),
        (decay(), decay(initial=lambda p: 1.1)),
        (decay(closure=cl.Known(lambda u: u)), decay(closure=cl.Known(lambda u: u**2))),
        (field(), field(initial=lambda x, p: 0.9 * CHANNEL.initial(x, p))),
        (field(), field(physics=lambda *a: 1.1 * CHANNEL.physics(*a))),
        (rock(), rock(source=lambda x, p: 1.01 * ROCK.source(x, p))),
        (rock(), rock(coefficient=lambda u, x, p, f: 1.01 * ROCK.coefficient(u, x, p, f))),
        (rock(), rock(boundary=0.1)),
    ],
)
def test_another_equation_is_noticed(one, other):
    assert not same_equation(one.fingerprint(), other.fingerprint())


@pytest.mark.parametrize("problem", [decay(), field(), rock()])
def test_the_same_equation_is_the_same_in_any_precision(problem):
    single = problem.fingerprint()
    with jax.enable_x64(True):
        assert same_equation(single, problem.fingerprint())
    assert sum(number is not None for number in single) >= 10


def test_beliefs_and_sizes_of_networks_are_not_the_equation():
    wide = dataclasses.replace(cl.MLP(), width=12)
    other = decay(parameters={"k": cl.Positive(3.0, width=0.1)}, closure=wide, dt=0.01)
    assert same_equation(decay().fingerprint(), other.fingerprint())
