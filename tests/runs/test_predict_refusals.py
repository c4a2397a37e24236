"""What cannot be predicted, and what is said then."""

import dataclasses

import pytest
from lines import fleet, line, newcomer

import closura as cl

pytestmark = [pytest.mark.xdist_group("predict"), pytest.mark.usefixtures("hardly_optimised")]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"system": "n", "time": [2.0], "u": [1.0]}, r"observed at time 2, after the problem's end, 1; .*--until 2"),
        ({"system": "n", "time": [0.5], "v": [1.0]}, r"the problem observes 'u', but the table has no such column"),
        ({"system": "n", "time": [0.5], "u": [1.0], "sigma": [-1.0]}, "sigma"),
    ],
    ids=["late", "other quantity", "noise"],
)
def test_tables_that_will_not_do(table, said):
    with pytest.raises(cl.DataError, match=said):
        fleet(line(0.3), [[1.0, 0.5]], [[0.5, 0.5]]).newcomer(table)


def test_noise_nobody_knows():
    problem = line()
    fitted = fleet(line(0.3), [[1.0, 0.5]], [[0.5, 0.5]])
    with pytest.raises(cl.DataError, match=r"noise of u is not known: .* give the newcomers such a column"):
        dataclasses.replace(fitted, problem=problem).newcomer(newcomer([1.0]))


def test_times_that_will_not_do():
    fitted = fleet(line(0.3), [[1.0, 0.5]], [[0.5, 0.5]])
    with pytest.raises(cl.DataError, match="times must be numbers from the problem's start, 0, on; got -1"):
        fitted.predict([-1.0])
    for nothing in ([], "soon"):
        with pytest.raises(cl.DataError, match=r"times must be numbers from .* on; got ('soon'|\[\])"):
            fitted.predict(nothing)
    with pytest.raises(cl.ProblemError, match="until=-1 is not after the problem's start"):
        fitted.predict(until=-1.0)


def test_folders_that_hold_nothing(tmp_path):
    with pytest.raises(cl.LoadError, match="there is no folder"):
        cl.load(tmp_path / "no", line())
    (tmp_path / "checkpoint.npz").touch()
    with pytest.raises(
        cl.LoadError, match=r"holds no posterior .posterior.nc.; continue that run with `closura resume"
    ):
        cl.load(tmp_path, line())
    (tmp_path / "posterior.nc").write_bytes(b"nothing")
    with pytest.raises(cl.LoadError, match=r"cannot be read .*; copy the folder again, or fit again"):
        cl.load(tmp_path, line())
