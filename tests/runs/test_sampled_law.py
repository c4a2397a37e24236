"""What a run leaves of a sampled law: its band in the table, draws in posterior.nc, coverage in the metrics."""

import dataclasses
import json
import runpy

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from smooth import drawn, observed

import closura as cl
from closura.diagnose._trajectories import SCORES, law_coverage
from closura.learning import Run, Settings
from closura.posterior import closure_view, table_of
from closura.posterior._law import law_groups, law_unknowns
from closura.problems import mass_damper
from closura.runs import collect, export_from, save

pytestmark = pytest.mark.xdist_group("folder")
SEEN = np.linspace(-0.5, 2.5, 40)


@pytest.fixture(scope="module")
def law():
    return observed(cl.Law(), 64, SEEN, 0.3)[0]


@pytest.fixture(scope="module")
def stopped(small):
    """A run with a sampled law, stopped before its first iteration: all chains as they start, one draw each."""
    data, truth = mass_damper.simulate(3, 0)
    problem = mass_damper.problem.with_closure(cl.Law(nodes=9))
    return collect(Run(problem, data, Settings(**small)), truth, {"problem": "springs", "data_seed": 0})


def test_the_table_says_how_sure_the_law_is(law):
    table = table_of(closure_view(law, SEEN[:, None], None, 50))
    columns = ["input", "f", "sd", "lower", "upper", "prior_sd", "slope", "density", "supported"]
    assert list(table.columns) == columns
    x = table["input"].to_numpy()
    np.testing.assert_allclose(table["f"], law(x), rtol=1e-5)
    np.testing.assert_allclose(table["sd"], law.sd(x), rtol=1e-5)
    np.testing.assert_allclose(np.stack([table["lower"], table["upper"]]), law.interval(x), rtol=1e-5)
    np.testing.assert_allclose(table["prior_sd"], law.prior_sd(x), rtol=1e-5)
    np.testing.assert_allclose(table["slope"], law.slope(x), rtol=1e-5)
    assert table["supported"].tolist() == law.supported(x).tolist()
    assert table["supported"].any()


def test_draws_on_a_grid_are_thinned_and_numbered(law, monkeypatch):
    view = closure_view(law, SEEN[:, None], None)
    whole = law_groups({"f": law}, [view], 16, 4)["/law/f"]
    assert whole["value"].dims == whole["slope"].dims == ("chain", "draw", "input")
    assert whole["value"].shape == (16, 4, 241)
    x = whole["input"].values[[10, 120]]
    np.testing.assert_allclose(whole["value"].sel(input=x).values.reshape(64, 2), law.draws(x), rtol=1e-5)
    monkeypatch.setattr("closura.posterior._law.STORED", 32)
    thinned = law_groups({"f": law}, [view], 16, 4)["/law/f"]
    assert thinned["value"].shape[:2] == (16, 2)
    assert thinned.attrs["draws_of_the_posterior"] == 64
    xr.testing.assert_allclose(thinned, whole.sel(draw=thinned["draw"], chain=thinned["chain"]), rtol=1e-3, atol=1e-4)
    unknowns = law_unknowns({"f": law}, 16, 4)
    assert {name: part.shape for name, (_, part) in unknowns.items()} == {
        "f_coordinates": (16, 4, 33),
        "f_log_size": (16, 4, 2),
    }


def test_a_folder_keeps_the_law_whole(stopped, law, tmp_path):
    closures = {"f": law}
    shown = [closure_view(law, SEEN[:, None], stopped.truth)]
    tree = stopped.tree.copy()
    tree["law/f"] = xr.DataTree(law_groups(closures, shown, 16, 4)["/law/f"])
    parts = {**stopped.view_parts, "closures": shown}
    result = dataclasses.replace(stopped, closures=closures, tree=tree, view_parts=parts, visited={"f": SEEN[:, None]})
    save(result, tmp_path / "run")
    with xr.open_datatree(tmp_path / "run" / "posterior.nc", engine="h5netcdf") as stored:
        np.testing.assert_allclose(
            stored["law/f/value"].mean(("chain", "draw")), law.draws(shown[0].grid[:, 0]).mean(axis=0), rtol=1e-4
        )
        assert "evenly picked" in stored["law/f"].attrs["note"]
    table = pd.read_csv(tmp_path / "run" / "closure.csv")
    assert {"sd", "lower", "upper", "prior_sd", "slope", "supported", "truth"} <= set(table.columns)
    again, x = cl.load_closures(tmp_path / "run")["f"], np.linspace(-2.0, 4.0, 9)
    for of in ("__call__", "sd", "prior_sd", "slope", "supported"):
        np.testing.assert_array_equal(getattr(again, of)(x), getattr(law, of)(x))
    one, other = result.export_closure(tmp_path / "one.py"), export_from(tmp_path / "run", tmp_path / "other.py")
    assert one.read_bytes() == other.read_bytes()
    module = runpy.run_path(str(one))
    np.testing.assert_allclose(module["f"](x, warn=False), result.closure(x), rtol=1e-4, atol=1e-4)
    assert module["f_draws"](x).shape == (50, 9)
    assert pd.read_csv(export_from(tmp_path / "run", tmp_path / "law.csv")).columns[1:3].tolist() == ["f", "sd"]


def test_a_run_that_was_stopped_early_has_all_of_it(stopped):
    """Of one draw a chain, which says little; but what is there is there."""
    assert stopped.closure is stopped.closures["f"]
    assert stopped.closure.draws(1.0).shape == (32,)
    assert stopped.tree["law/f"]["value"].dims == ("chain", "draw", "input")
    assert stopped.tree["unconstrained_posterior"]["f_coordinates"].shape[:2] == (32, 1)
    assert set(SCORES) <= stopped.metrics.keys()
    assert 0 <= stopped.metrics["law_coverage"] <= 1
    assert json.dumps(stopped.metrics)


def test_coverage_of_a_law_is_the_share_of_inputs_in_its_band():
    law = drawn(cl.Law(), 400)
    x = np.linspace(-2.0, 4.0, 200)[:, None]
    low, high = law.interval(x[:, 0])
    middle = float(np.median(low[:100]))
    assert law_coverage(law, lambda v: 0 * v, x) == 1.0
    expected = np.mean((low <= middle) & (middle <= high))
    assert 0.2 < expected < 0.99
    assert law_coverage(law, lambda v: middle + 0 * v, x) == pytest.approx(expected, abs=0.011)
