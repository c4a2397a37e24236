"""Laws that are steeper than the nodes of their tables resolve are told from those that are not."""

import dataclasses
import itertools
import re

import jax.numpy as jnp
import numpy as np
import pytest

from closura.laws import FittedLaw, Law, Range, Scaling, SmoothLaw, support_of, unresolved

REACH = Range(jnp.array([-7.5]), jnp.array([7.5]))
SCALING = Scaling(jnp.zeros(1), jnp.array([4.0]), jnp.asarray(2.0))


def seen(spec, true, sd, seed=0):
    """The posterior of a law of which noisy values were measured, of the likeliest sizes."""
    frame, random = spec.frame(REACH, SCALING), np.random.default_rng(seed)
    x = random.uniform(-5.0, 5.0, 400)
    y = true(x) + sd * random.normal(size=len(x))
    count = spec.coordinates
    blank = SmoothLaw(spec, jnp.zeros(count), jnp.zeros(2))
    design = np.stack(
        [np.asarray(jnp.vectorize(blank.with_weights(row).prepare(frame))(x), float) for row in jnp.eye(count)]
    )
    best = None
    for log_size in itertools.product(np.arange(-6.0, 18.0, 1.0), np.arange(-14.0, 6.0, 1.0)):
        precision = np.asarray(frame.precision(jnp.array(log_size)), float)
        matrix = design @ design.T / sd**2 + np.diag(precision)
        mean = np.linalg.solve(matrix, design @ y / sd**2)
        evidence = 0.5 * np.log(precision).sum() - 0.5 * np.linalg.slogdet(matrix)[1] + 0.5 * mean @ matrix @ mean
        best = max(best or (-np.inf,), (evidence, log_size, mean, matrix), key=lambda found: found[0])
    _, log_size, mean, matrix = best
    away = np.linalg.solve(np.linalg.cholesky(matrix).T, random.normal(size=(count, 300))).T
    law = SmoothLaw(spec, jnp.asarray(mean + away), jnp.tile(jnp.array(log_size), (300, 1)))
    return FittedLaw("f", law, ("v",), support_of(x[:, None]), frame)


LAWS = {
    "step": (lambda v: np.tanh(20 * v), {}, True),
    "step elsewhere": (lambda v: 0.3 * v + np.tanh(20 * (v - 1.3)), {}, True),
    "kink": (lambda v: np.abs(v), {}, True),
    "kink that is stated": (lambda v: np.abs(v), {"kink": 0.0}, False),
    "cubic": (lambda v: 0.08 * v**3 + 0.08 * v, {}, False),
    "wave": (lambda v: 0.4 * np.sin(v) + 0.2 * v, {}, False),
    "line": (lambda v: 0.3 * v, {}, False),
}


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("sd", [0.02, 0.1])
def test_steps_between_nodes_are_told_from_laws_that_nodes_resolve(name, sd):
    true, stated, steep = LAWS[name]
    remark = unresolved(seen(Law(**stated), true, sd))
    assert (remark is not None) == steep, remark
    if steep:
        assert "nodes=65" in remark
        assert "jump=" in remark


def test_the_remark_says_where():
    remark = unresolved(seen(Law(), LAWS["step elsewhere"][0], 0.05))
    place = float(re.search("near v = ([0-9.]+) ", remark).group(1))
    assert abs(place - 1.3) < 0.5  # of nodes that are 0.48 apart


def test_a_law_between_whose_nodes_all_data_lie_has_nothing_to_bend():
    found = seen(Law(), LAWS["line"][0], 0.05)
    narrow = dataclasses.replace(found, support=support_of(np.linspace(0.1, 0.2, 50)[:, None]))
    assert narrow.draws(np.array([])).shape == (300, 0)
    assert unresolved(narrow) is None
