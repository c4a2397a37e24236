"""Predictions of fields in the plane, on a grid and on a mesh, and of those that move."""

import numpy as np
import pandas as pd
import pytest

from closura.show import Forecast
from closura.show._forecast import ROWS, forecast

GRID = np.stack(np.meshgrid(np.linspace(0, 1, 4), np.linspace(0, 2, 5), indexing="ij"), axis=-1).reshape(-1, 2)
CORNER = np.array([[0, 0], [1, 0], [0, 1], [1, 1], [2, 0]], float)  # not convex
TRIANGLES = np.array([[0, 1, 2], [1, 3, 2], [1, 4, 3]])


def view(grid, shape, triangles, systems=("a <b>", "c"), before=True):
    def table(height):
        rows = [
            {
                "system": name,
                "x": x,
                "y": y,
                "quantity": "u",
                "mean": height * x,
                "2.5%": height * x - y,
                "97.5%": x + 3,
            }
            for name in systems
            for x, y in grid
        ]
        return pd.DataFrame(rows)

    observed = pd.DataFrame({"system": list(systems), "x": 0.5, "y": 0.4, "quantity": "u", "value": 1.0})
    titles = [f"{name}: belongs" for name in systems]
    known = table(2.0), table(1.0) if before else None, observed
    return Forecast(("x", "y"), tuple(systems), ("u",), *known, titles, grid, shape, triangles)


@pytest.mark.parametrize("where", [(GRID, (4, 5), None), (CORNER, None, TRIANGLES)])
def test_fields_have_a_row_for_each_system(where):
    figure = forecast(view(*where))
    assert [cell.get_suptitle() for cell in figure.subfigs] == ["a <b>: belongs", "c: belongs"]
    titles = [axes.get_title() for axes in figure.subfigs[0].axes if axes.get_title()]
    assert titles == ["expected of any member", "mean", "width of 95 % band"]
    x, y = figure.subfigs[0].axes[1].lines[0].get_xydata()[0]
    assert (x, y) == (0.5, 0.4)


def test_many_systems_are_counted():
    figure = forecast(view(GRID, (4, 5), None, systems=[f"s{i}" for i in range(9)], before=False))
    assert len(figure.subfigs) == ROWS
    assert [axes.get_title() for axes in figure.subfigs[0].axes if axes.get_title()] == ["mean", "width of 95 % band"]
    assert "9" in figure.get_suptitle()


def test_fields_that_move_are_curves_where_they_were_observed():
    lines = np.linspace(0, 3, 4), np.linspace(0, 1, 5), np.linspace(0, 2, 5)
    grid = np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1).reshape(-1, 3)
    table = pd.DataFrame(grid, columns=["time", "x", "y"]).assign(system="a", quantity="u")
    mean = 100 * table["x"] + 10 * table["y"] + table["time"]
    ends = {"2.5%": mean - 1, "97.5%": mean + 1, "measured 2.5%": mean - 2, "measured 97.5%": mean + 2}
    observed = pd.DataFrame({"system": "a", "time": [0.5, 1.0, 1.0], "x": [0.26, 0.26, 0.75], "y": [0.5, 0.5, 1.4]})
    observed = observed.assign(quantity="u", value=30.0)
    made = Forecast(
        ("time", "x", "y"),
        ("a",),
        ("u",),
        table.assign(mean=mean, **ends),
        None,
        observed,
        ["a"],
        grid,
        (4, 5, 5),
        None,
    )
    panels = forecast(made).axes
    assert [axes.get_title(loc="left") for axes in panels] == ["a, x = 0.25, y = 0.5", "a, x = 0.75, y = 1.5"]
    for axes, (start, count) in zip(panels, ((30.0, 2), (90.0, 1))):
        curve, dots = (line for line in axes.get_lines() if line.get_label() in ("mean", "data"))
        np.testing.assert_allclose(curve.get_ydata(), start + lines[0])
        assert len(dots.get_ydata()) == count
