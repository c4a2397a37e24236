"""Tables as the command line reads them."""

import numpy as np
import pandas as pd
import pytest
from springs import PROBLEM, fleet

from closura.cli._data import load_task
from closura.cli._options import Context, choose


@pytest.fixture
def dated(tmp_path):
    """A workbook of two sheets, with dates."""
    when = pd.Timestamp("2024-01-03") + pd.to_timedelta(fleet()["time"], unit="h")
    with pd.ExcelWriter(tmp_path / "fleet.xlsx") as writer:
        fleet(1).to_excel(writer, sheet_name="2023", index=False)
        fleet().assign(time=when).to_excel(writer, sheet_name="2024", index=False)
    return "fleet.xlsx"


def test_unit_and_sheet_are_passed_on(closura, fitted, problem, dated):
    _, _, err = closura("fit", problem, "--data", dated, "--time-unit", "h", "--sheet", "2024")
    assert "note: sheet '2024' of 2 read\n" in err
    assert "note: times are dates: counted in h" in err
    _, data, options = fitted[0]
    np.testing.assert_allclose(data.time, np.linspace(0, 8, 9) * np.ones((3, 1)), rtol=1e-9)
    assert (options["context"]["time_unit"], options["context"]["sheet"]) == ("h", "2024")


def test_both_may_be_settings_and_are_refused_with_a_reason(refused, problem, dated):
    context, _ = choose(None, ["sheet=2024", "time-unit=h"], {"problem": problem, "data": dated})
    assert (context.sheet, context.time_unit) == ("2024", "h")
    refused(problem, "--data", dated, "--sheet", "2025", says=("no sheet '2025'; its sheets are: 2023, 2024",))
    refused(problem, "--data", dated, "--sheet", "2024", says=("the time is not a number", "--time-unit h"))
    refused(problem, "--data", dated, "--time-unit", "h", says=("the time is a number", "(--time-unit)"))


def test_a_run_that_goes_on_reads_its_own_copy_as_it_is(files, tmp_path):
    (tmp_path / "run").mkdir()
    files("run/data.csv", fleet().to_csv(index=False))
    path = str(tmp_path / files("springs.py", PROBLEM))
    context = Context(problem=path, data="gone.xlsx", time_unit="h", sheet="2024")
    task = load_task(context, tmp_path / "run")
    np.testing.assert_array_equal(task.data.time[0], fleet()["time"][:9])
    assert (task.context["time_unit"], task.context["sheet"]) == ("h", "2024")
