"""A run folder of version 0.1: results are read, a checkpoint is refused with a sentence.

`run-0.1.zip` is what that version (commit 337febf) wrote for the problem in it: `closura fit` with 8 chains in one group, 60
iterations, settle 20, 6 draws; the checkpoint of that run ten iterations before its end is beside the results.
"""

from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pandas as pd
import pytest

import closura as cl
from closura.cli._problem_file import from_file

pytestmark = [pytest.mark.xdist_group("predict-cli"), pytest.mark.usefixtures("hardly_optimised")]
AT_SIX = [0.10198, 0.45501, 0.54026]  # means of u at time 6, as 0.1 predicted them


@pytest.fixture
def old(tmp_path):
    ZipFile(Path(__file__).parent / "run-0.1.zip").extractall(tmp_path / "old")
    return tmp_path / "old"


def test_results_of_an_old_run_are_read(old):
    fleet = cl.load(old, from_file(old / "problem.py"))
    found = fleet.predict(until=6.0)
    np.testing.assert_allclose(found.loc[found["time"] == 6.0, "mean"], AT_SIX, rtol=1e-3)
    assert fleet.closures["f"](0.5) == pytest.approx(0.060695, rel=1e-4)
    np.testing.assert_allclose(fleet.posterior["mu"].mean(("chain", "draw")), [1.42182, 0.83994], rtol=1e-4)
    assert fleet.summary()["mean"].iloc[0] == pytest.approx(3.492828, rel=1e-5)


@pytest.mark.nightly
def test_a_new_system_joins_an_old_run(old):
    fleet = cl.load(old, from_file(old / "problem.py"))
    new = pd.DataFrame({"system": "new", "time": [1.0, 2.0, 3.0], "u": [-0.35, -0.35, 0.6]})
    assert fleet.newcomer(new).belongs == {"new": True}


def test_commands_on_an_old_run(closura, old, tmp_path):
    code, out, err = closura("predict", old, "--until", "6")
    assert code == 0, err
    assert "3 fitted systems predicted up to time 6" in out
    found = pd.read_csv(tmp_path / "predictions" / "old" / "predictions.csv")
    np.testing.assert_allclose(found.loc[found["time"] == 6.0, "mean"], AT_SIX, rtol=1e-3)
    assert '"kind"' not in (old / "closure.json").read_text(), "version 0.1 knew one kind of law"
    for ending in (".py", ".c"):
        code, _, err = closura("export", old, "--out", f"law{ending}")
        assert code == 0, err
    assert "f_draws" not in (tmp_path / "law.py").read_text()


def test_a_checkpoint_of_an_old_run_is_refused(closura, old):
    code, _, err = closura("resume", old)
    assert code == 2
    assert "was written by closura 0.1.0, and this version cannot continue it; finish that run with the version" in err
    again = f"closura fit --config {old / 'config.yaml'} --out {old} --overwrite"
    assert f"or start again with `{again}`" in err
    (old / "config.yaml").unlink()
    with pytest.raises(cl.ProblemError, match="was written by another version of closura, and"):
        cl.fit(
            from_file(old / "problem.py"), old / "data.csv", out=old, resume=True, chains=8, groups=1, progress=False
        )
