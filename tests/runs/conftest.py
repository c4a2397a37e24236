"""A small fleet, a run of it, and its result."""

import pytest

from closura import MLP
from closura.learning import Run, Settings
from closura.problems import mass_damper
from closura.runs import collect

SMALL = {"chains": 32, "iterations": 20, "tune": 0, "draws": 5, "extend": 0, "chunk": 10, "devices": 1}


@pytest.fixture(scope="session")
def small() -> dict:
    return SMALL


@pytest.fixture(scope="session")
def fleet():
    problem = mass_damper.problem.with_closure(MLP(width=8, depth=1))
    return (problem, *mass_damper.simulate(3, 0))


@pytest.fixture(scope="session")
def fresh(fleet):
    """A run that was stopped before its first iteration: nothing of it is compiled."""
    problem, data, _ = fleet
    return Run(problem, data, Settings(**SMALL))


@pytest.fixture(scope="session")
def result(fresh, fleet):
    return collect(fresh, fleet[2], {"problem": "springs", "data_seed": 0})


@pytest.fixture(autouse=True)
def unillustrated(request, monkeypatch):
    """Figures take most of the time of saving: only tests that ask for it draw them."""
    if "illustrated" not in request.fixturenames:
        monkeypatch.setattr("closura.show.save_figures", lambda *_: {})


@pytest.fixture
def illustrated():
    pass
