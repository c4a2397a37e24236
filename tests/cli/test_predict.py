"""`closura predict`: what it prints and writes, and what it refuses."""

import shutil

import pandas as pd
import pytest
from springs import PROBLEM, fleet

from closura.cli._problem_file import from_file
from closura.data import read_table
from closura.learning import Run, Settings
from closura.runs import claim, collect, save

pytestmark = [pytest.mark.xdist_group("predict-cli"), pytest.mark.usefixtures("hardly_optimised")]

NEW = "system,time,u\nn1,0.5,0.4\nn1,1.0,1.0\n"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """The folder of a run that was stopped at once, and its problem's file: nothing of it is compiled."""
    place = tmp_path_factory.mktemp("stopped")
    (place / "springs.py").write_text(PROBLEM)
    problem = from_file(place / "springs.py")
    run = Run(problem, read_table(fleet()), Settings(chains=32, iterations=20, tune=0, draws=5, devices=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("closura.show.save_figures", lambda *_: {})
        result = collect(run, context={"problem": str(place / "springs.py")})
        claim(place / "run", problem, run.data, None, result.settings)
        save(result, place / "run")
    return place / "run"


def test_newcomers(closura, files, stopped, tmp_path):
    code, out, err = closura("predict", stopped, "--data", files("new.csv", NEW), "--until", "8.1", "--out", "new")
    assert code == 0, err
    assert out.startswith("n1: belongs to the fleet (p = ")
    assert "population 97.5%" in out
    assert "note: this run was stopped before its end" in out
    assert "new/predictions.csv\nnew/parameters.csv\nnew/forecast.png\n" in out
    parameters = pd.read_csv(tmp_path / "new" / "parameters.csv")
    assert parameters["parameter"].tolist() == ["k", "u0", "v0"]
    assert parameters["belongs"].all()
    predictions = pd.read_csv(tmp_path / "new" / "predictions.csv")
    assert predictions["time"].max() == pytest.approx(8.16)
    assert (predictions["measured 97.5%"] >= predictions["97.5%"]).all()
    assert (tmp_path / "new" / "forecast.png").stat().st_size > 10_000
    code, _, err = closura("predict", stopped, "--data", "new.csv", "--out", "new")
    assert code == 2
    assert "new/predictions.csv exists; choose another --out, or replace it with --overwrite" in err


def test_fitted_systems(closura, stopped, tmp_path):
    code, out, _ = closura("predict", stopped)
    assert code == 0
    assert "3 fitted systems predicted up to time 8." in out
    assert sorted(path.name for path in (tmp_path / "predictions" / "run").iterdir()) == [
        "forecast.png",
        "parameters.csv",
        "predictions.csv",
    ]


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        ("system,time,u\nn1,9.0,0.4\n", [], ("observed at time 9, after the problem's end, 8", "--until 9")),
        ("system,time,w\nn1,1.0,0.4\n", [], ("the problem observes 'u', but the table has no such column",)),
        ("machine,time,u\nn1,1.0,0.4\n", [], ("system", "has the columns that the fit's table had")),
        (NEW, ["--until", "-3"], ("until=-3 is not after the problem's start, 0",)),
    ],
    ids=["late", "quantity", "columns", "until"],
)
def test_tables_that_will_not_do(closura, files, stopped, tmp_path, text, options, says):
    code, out, err = closura("predict", stopped, "--data", files("new.csv", text), "--out", "new", *options)
    assert code == 2
    assert out == ""
    for part in says:
        assert part in err
    assert not (tmp_path / "new").exists()


def test_folders_that_will_not_do(closura, stopped, tmp_path):
    code, _, err = closura("predict", "nowhere")
    assert code == 2
    assert "nowhere does not exist; name a folder that `closura fit` wrote" in err
    (tmp_path / "mine").mkdir()
    assert "mine is not the folder of a run" in closura("predict", "mine").err
    shutil.copytree(stopped, tmp_path / "begun")
    (tmp_path / "begun" / "posterior.nc").unlink()
    assert (
        "begun holds no posterior (posterior.nc); name the folder of a run that has ended"
        in closura("predict", "begun").err
    )
    config = (tmp_path / "begun" / "config.yaml").read_text().splitlines(keepends=True)
    (tmp_path / "begun" / "config.yaml").write_text("".join(x for x in config if not x.startswith("problem:")))
    assert "closura.load('begun', problem).predict()" in closura("predict", "begun").err
    (tmp_path / "file").touch()
    assert "file is a file; choose another folder with --out" in closura("predict", stopped, "--out", "file").err
