"""`closura check`: what it finds before a long run, and what it says."""

import numpy as np
import pandas as pd
import pytest
from springs import PROBLEM, fleet

import closura as cl
from closura.diagnose import confounded, foreseen
from closura.learning import Run, make_settings

pytestmark = pytest.mark.usefixtures("hardly_optimised")
SIZES = {"chains": 32, "devices": 1}


def spring(law="f(v)", **changes):
    options = {
        "state": ("u", "v"),
        "parameters": {
            "k": cl.Positive(guess=4.0, width=0.3, spread=0.2),
            "u0": cl.Real(guess=0.0),
            "v0": cl.Real(guess=0.0),
        },
        "initial": lambda p: (p.u0, p.v0),
        "span": (0.0, 8.0),
        "dt": 0.08,
        "closure": cl.MLP(width=8, depth=1),
        "observed": "u",
        "sigma": 0.15,
    }
    laws = {
        "f(v)": lambda t, s, p, f: (s.v, 3 * np.sin(1.0) - f(s.v) - p.k * s.u),
        "f(u)": lambda t, s, p, f: (s.v, 3 * np.sin(1.0) - f(s.u) - p.k * s.u),
        "f(u) + constant": lambda t, s, p, f: (s.v, p.k - f(s.u) - 4.0 * s.u),
    }
    return cl.ODE(laws[law], **options | changes)


def started(problem, table):
    """What `cl.check` looks at; one whole check is `found`."""
    return Run(problem, cl.read_table(table, axes=problem.axes), make_settings(SIZES, problem))


@pytest.fixture(scope="module")
def found(hardly_optimised):
    return cl.check(spring(), fleet(4, 30), **SIZES)


def test_nothing_in_the_way(found):
    assert found.warnings == []
    assert found.facts[0].startswith(
        "4 systems, 120 observations (30 each) of u; to infer: k, u0, v0 of each; closures: f"
    )
    assert "forward=solver: about" in str(found)
    assert "nothing in the way" in str(found)


def test_a_surrogate_and_data_in_other_units():
    table = fleet(4, 30).assign(time=lambda t: t["time"] / 1000, u=lambda t: 1e3 + t["u"])
    found = cl.check(spring(), table, forward="basis", **SIZES)
    assert "forward=basis: about" in str(found)
    assert "training of the surrogate" in str(found)
    time, u = found.warnings[:2]
    assert time.startswith(
        "All data have time below 0.008, and the problem goes from 0 to 8: is the unit of time right?"
    )
    assert u.startswith("100% of the observations lie outside of everything that 32 draws from the priors predict")


def test_a_law_that_a_parameter_can_undo():
    (said,) = confounded(started(spring("f(u)"), fleet(4, 30)))
    assert said.startswith("Of the closure 'f', a part in proportion to u cannot be told from the parameter k")


def sampled_law_beside(equation, **changes):
    """What is said of a law that chains sample, in one of the equations above."""
    said = cl.check(spring(equation, closure=cl.Law(nodes=9), **changes), fleet(4, 30), **SIZES).warnings
    return [line for line in said if line.startswith("Data will not decide")]


def test_a_sampled_law_that_a_parameter_can_undo():
    (said,) = foreseen(started(spring("f(u)", closure=cl.Law(nodes=9)), fleet(4, 30)))
    assert said.startswith("Data will not decide k and a part of f in proportion to u: only their sum. ")
    assert "fix k (a plain number among the parameters)" in said


@pytest.mark.nightly
def test_that_advice_helps_and_that_nothing_is_said_of_what_data_decide():
    known = {"k": 4.0, "u0": cl.Real(guess=0.0), "v0": cl.Real(guess=0.0)}
    assert sampled_law_beside("f(u)", parameters=known) == []
    assert sampled_law_beside("f(v)") == []


@pytest.mark.nightly
def test_a_sampled_law_and_what_is_subtracted_from_it():
    (said,) = sampled_law_beside("f(u) + constant")
    assert said.startswith("Data will not decide k and a constant in f: only their difference. ")


def ring(systems=6, points=25):
    """Oscillators of different mass that ring down."""
    time, random = np.linspace(0.2, 7.9, points), np.random.default_rng(0)
    parts = []
    for k in range(systems):
        u = (1 + random.random()) * np.exp(-0.1 * time) * np.cos(np.sqrt(2 / np.exp(0.3 * random.normal())) * time + k)
        noise = 0.05 * random.normal(size=points)
        parts.append(pd.DataFrame({"system": f"s{k}", "time": time, "u": u + noise}))
    return pd.concat(parts)


@pytest.mark.nightly
@pytest.mark.parametrize("laws", [{"odd": True}, {}])
def test_two_sampled_laws_and_a_mass(laws):
    """A factor of all forces cannot be told from the mass; nor can a constant force, of two laws."""

    def said(**mass):
        problem = cl.ODE(
            lambda t, s, p, f: (s.v, -(f.spring(s.u) + f.damping(s.v)) / (p.m if mass else 1.0)),
            state=("u", "v"),
            parameters={**mass, "u0": cl.Real(), "v0": cl.Real(width=2.0)},
            initial=lambda p: (p.u0, p.v0),
            span=(0.0, 8.0),
            integrator=cl.Leapfrog(),
            closure={"spring": cl.Law(nodes=9, **laws), "damping": cl.Law(nodes=9, **laws)},
            observed="u",
            sigma=0.05,
        )
        found = cl.check(problem, ring(), **SIZES).warnings
        return sorted(line.split(":")[0] for line in found if line.startswith("Data will not decide"))

    if laws:
        assert said() == []
        assert said(m=cl.Positive(width=0.5)) == ["Data will not decide m, the size of damping and the size of spring"]
    else:
        assert said() == ["Data will not decide a constant in damping and a constant in spring"]


@pytest.mark.nightly
def test_what_a_law_cannot_have_is_not_held_against_it():
    sloped = spring("f(u) + constant", closure=cl.MLP(width=8, depth=1, zero_at_origin=True))
    free = cl.check(spring("f(u) + constant"), fleet(4, 30), **SIZES).warnings
    assert any("a constant cannot be told from the parameter k" in line for line in free)
    assert not any("a constant" in line for line in cl.check(sloped, fleet(4, 30), **SIZES).warnings)


@pytest.mark.nightly
def test_a_promise_cannot_be_undone_by_a_parameter_that_is_known():
    known = {"k": 4.0, "u0": cl.Real(guess=0.0), "v0": cl.Real(guess=0.0)}
    assert cl.check(spring("f(u)", parameters=known), fleet(4, 30), **SIZES).warnings == []


@pytest.mark.nightly
def test_nor_by_one_whose_typical_value_is_known():
    narrow = {"k": cl.LogNormal(np.log(4.0), 0.01), "u0": cl.Real(guess=0.0), "v0": cl.Real(guess=0.0)}
    assert cl.check(spring("f(u)", parameters=narrow), fleet(4, 30), **SIZES).warnings == []


@pytest.mark.nightly
def test_a_parameter_of_all_systems_cannot_undo_what_differs_between_them():
    """A load that is known of each: with one g for all, how an odd law grows with it is seen in how they differ."""
    loads = fleet(4, 30).assign(load=lambda t: 1.0 + t["system"].factorize()[0])

    def said(shared):
        mine = {"g": cl.Real(guess=0.0, shared=shared), "load": cl.Column(), "u0": cl.Real(guess=0.0)}
        problem = cl.ODE(
            lambda t, s, p, f: p.g - 4.0 * s.u + f(p.load),
            state="u",
            parameters=mine,
            initial=lambda p: p.u0,
            span=(0.0, 8.0),
            closure=cl.MLP(width=8, depth=1, odd=True),
            observed="u",
            sigma=0.15,
        )
        return [line for line in cl.check(problem, loads, **SIZES).warnings if "cannot be told" in line]

    assert said(False)
    assert not said(True)


def test_parameters_that_do_the_same():
    problem = cl.ODE(
        lambda t, s, p: -p.a * p.b * s.u,
        state="u",
        parameters={"a": cl.Positive(), "b": cl.Positive(), "u0": cl.Positive()},
        initial=lambda p: p.u0,
        span=(0.0, 8.0),
        observed="u",
        sigma=0.01,
    )
    (said,) = confounded(started(problem, fleet(4, 30).assign(u=lambda t: np.exp(-t["time"]))))
    assert "the parameters a, b cannot be told apart" in said


def test_the_picture_shows_data_and_priors(found, tmp_path):
    assert found.save(tmp_path / "check.png").stat().st_size > 10_000
    figure = found.plot()
    assert "Before any fit" in figure.get_suptitle()
    assert "mean of the prior" in [text.get_text() for legend in figure.legends for text in legend.get_texts()]


@pytest.mark.parametrize("kind", ["ode", "elliptic", "evolution"])
def test_starting_points_can_be_read(kind, tmp_path):
    from closura.cli._problem_file import from_file, write_start

    write_start(tmp_path / "mine.py", kind)
    problem = from_file(tmp_path / "mine.py")
    assert (problem.name, problem.observed) == ("mine", ("u",))
    assert list(problem.closures) == ["f"]


@pytest.mark.parametrize(
    "kind", ["ode", *(pytest.param(kind, marks=pytest.mark.nightly) for kind in ("elliptic", "evolution"))]
)
def test_starting_points_are_problems(kind, tmp_path):
    from closura.cli._problem_file import from_file, write_start

    path = tmp_path / "mine.py"
    write_start(path, kind)
    smaller = {"nodes=(30, 30)": "nodes=(9, 9)", "cells=40": "cells=16", "snapshots=40": "snapshots=10"}
    assert kind == "ode" or any(size in path.read_text() for size in smaller)
    for size, small in smaller.items():
        path.write_text(path.read_text().replace(size, small))
    problem = from_file(path)
    assert problem.name == "mine"
    middle = [np.linspace(low, high, 7)[1:-1] for low, high in problem.bounds]
    frame = pd.DataFrame(dict(zip(problem.axes, middle))).assign(u=np.linspace(0.1, 0.3, 5))
    frame = pd.concat([frame.assign(system=name) for name in ("a", "b", "c")])
    text = (tmp_path / "mine.py").read_text()
    assert "closura check mine.py --data fleet.csv" in text
    assert "NAME" not in text
    found = cl.check(problem, frame, **SIZES)
    assert found.facts[0].startswith("3 systems, 15 observations (5 each) of u")


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("mine.py", "pde", "--kind pde is none; there are elliptic, evolution, ode"),
        ("mine.txt", "ode", "name a Python file made of letters, digits and underscores"),
        ("my-problem.py", "ode", "name a Python file"),
        ("taken.py", "ode", "taken.py exists; choose another name, or replace it with --overwrite"),
        ("nowhere/mine.py", "ode", "cannot be written: No such file or directory"),
    ],
)
def test_starting_points_that_cannot_be(name, kind, says, tmp_path):
    from closura.cli._options import UsageError
    from closura.cli._problem_file import write_start

    (tmp_path / "taken.py").write_text(PROBLEM)
    with pytest.raises(UsageError, match=says):
        write_start(tmp_path / name, kind)
