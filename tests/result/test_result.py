"""Checkpoints, and what a result can be asked."""

import warnings
from copy import copy

import jax
import numpy as np
import pytest

from closura.problem import ProblemError
from closura.result import restore, save, store
from closura.result._checkpoint import ASIDE

pytestmark = pytest.mark.xdist_group("folder")

# Checkpoints


def test_checkpoint_survives_a_death_while_the_next_is_written(tmp_path, fresh):
    store(fresh, tmp_path)
    (tmp_path / ASIDE).write_bytes(b"half")
    again = copy(fresh)
    again.law = jax.tree.map(np.zeros_like, fresh.law)
    restore(again, tmp_path)
    jax.tree.map(np.testing.assert_array_equal, again.law, fresh.law)
    store(again, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint.npz"}


@pytest.mark.parametrize("damage", ["cut short", "part missing", "other shape"])
def test_damaged_checkpoint_says_so(tmp_path, fresh, damage):
    store(fresh, tmp_path)
    place = tmp_path / "checkpoint.npz"
    with np.load(place) as stored:
        arrays = dict(stored)
    if damage == "cut short":
        place.write_bytes(place.read_bytes()[:1000])
    elif damage == "part missing":
        np.savez(place, **{name: arrays[name] for name in arrays if name != "state_1"})
    else:
        np.savez(place, **(arrays | {"state_1": arrays["state_1"][..., None]}))
    before = dict(vars(fresh))
    with pytest.raises(ProblemError, match=r"is damaged, or does not fit .*; start again with --overwrite"):
        restore(fresh, tmp_path)
    assert all(vars(fresh)[key] is value for key, value in before.items())


def test_restored_history_keeps_its_phases_apart(tmp_path, fresh, monkeypatch):
    def entry(phase, first, count):
        return {"phase": np.full(count, phase), "iteration": first + np.arange(count), "loglik": np.zeros(count)}

    monkeypatch.setattr(fresh, "history", [entry("learn", 0, 3), entry("learn", 3, 3), entry("settle", 6, 2)])
    monkeypatch.setattr(fresh, "began", fresh.began - 100.0)
    store(fresh, tmp_path)
    monkeypatch.setattr(fresh, "began", fresh.began + 100.0)
    began = fresh.began
    restore(fresh, tmp_path)
    assert [(h["phase"][0], len(h["loglik"])) for h in fresh.history] == [("learn", 6), ("settle", 2)]
    assert began - fresh.began > 99  # seconds count from the first start


# What a result can be asked


def test_result_of_a_run_that_has_not_begun(result, fleet):
    assert str(result).startswith("NOT CONVERGED: do not use these results yet.\nStopped at iteration 0 of 30")
    assert "log k" in str(result)
    assert not result.converged
    assert result.posterior["k"].dims == ("chain", "draw", "system")
    assert result.metrics["rhat_max"] is None
    assert result.metrics["finished"] is False
    assert result.history.empty


def test_closure_takes_numbers_and_arrays(result):
    assert isinstance(result.closure(3.0), float)
    np.testing.assert_allclose(result.closure(np.array([[1.0, 3.0]]))[0, 1], result.closure(3.0), rtol=1e-6)
    np.testing.assert_allclose(result.closures["f"](3), result.closure(3.0))
    with pytest.raises(TypeError, match="this closure takes 1 inputs, got 2"):
        result.closure(1.0, 2.0)


@pytest.mark.parametrize("laws", [{}, {"damping": abs, "spring": abs}])
def test_closure_by_name_when_there_is_not_one(result, monkeypatch, laws):
    monkeypatch.setattr(result, "closures", laws)
    with pytest.raises(ValueError, match=f"has {len(laws)} closures .*use result.closures"):
        result.closure(1.0)


def test_summary(result):
    table = result.summary()
    assert table[["system", "parameter"]].iloc[[0, 4, 8]].to_numpy().tolist() == [["1", "k"], ["2", "u0"], ["3", "v0"]]
    draws = result.posterior["u0"].sel(system="2")
    row = table[(table["system"] == "2") & (table["parameter"] == "u0")].iloc[0]
    assert row["mean"] == pytest.approx(float(draws.mean()), rel=1e-4)
    assert row["2.5%"] < row["mean"] < row["97.5%"]


@pytest.mark.parametrize("name", ["closure", "trajectories", "population"])
def test_figures_on_demand(result, name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert getattr(result, f"plot_{name}")().axes


def test_saving_twice_gives_the_same_numbers(tmp_path, result):
    save(result, tmp_path / "a")
    save(result, tmp_path / "b")
    for name in ("closure.csv", "summary.csv", "data.csv", "closure.eqx"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
