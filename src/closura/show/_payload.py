"""What the report's script draws: a `View` as plain JSON, arrays of numbers packed small.

A packed array is {at, by, of, b64}: value = at + by * code, with codes of 16 bits in base64 and shape `of`. A code of
65535 is a value that is not finite. The page unpacks what belongs to a system when that system is chosen.
"""

from base64 import b64encode

import matplotlib
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from ._figures import BLACK, BLUE, GREEN, GREY, GROUPS, ORANGE, PRIOR
from ._view import BandView, ClosureView, View, evenly, normal_density

MISSING = 65535
ROOM = 2_500_000  # bytes that draws, or fits, of all systems together may take
DRAWS, CURVE, SIDE = (40, 200), (60, 400), (16, 64)  # least and most: draws of a chain, points of a curve, of a side
HISTORY = 600
COLOURS = {"fit": BLUE, "data": ORANGE, "truth": BLACK, "quiet": GREY, "surrogate": GREEN, "chosen": "#C65F9C"}
COLOURS |= {"prior": PRIOR}
COURSE = {
    "loglik": "log-likelihood",
    "acceptance": "share of moves accepted",
    "surrogate_loss": "surrogate loss",
    "second_stage": "share confirmed by the solver",
}
Json = dict[str, object]


def payload(view: View) -> Json:
    """Everything the page draws."""
    draws = evenly(view.theta.shape[1], _room(view.theta.shape[2] * view.theta.shape[3] * 8, DRAWS))
    return {
        "names": {of: list(getattr(view, of)) for of in ("systems", "labels", "parameters", "quantities", "axes")},
        "colours": COLOURS | {"groups": list(GROUPS), "maps": {n: _palette(n) for n in ("viridis", "magma", "RdBu_r")}},
        "grid": _grid(view),
        "systems": _systems(view, draws),
        "laws": [_law(one) for one in view.closures],
        "population": [_population(view, index) for index in range(len(view.parameters))],
        "draws": _draws(view, draws),
        "history": _history(view.history),
        "surrogate": _surrogate(view),
        "bars": {"name": view.bar_label, "symmetric": _symmetric(view.observations)},
    }


def pack(array: ArrayLike) -> Json:
    """An array of numbers as {at, by, of, b64}."""
    values = np.asarray(array, float)
    good = np.isfinite(values)
    low, high = (values[good].min(), values[good].max()) if good.any() else (0.0, 0.0)
    step = float(high / (MISSING - 1) - low / (MISSING - 1)) or 1.0
    with np.errstate(invalid="ignore", over="ignore"):
        codes = np.where(good, np.clip(np.round((values - low) / step), 0, MISSING - 1), MISSING).astype("<u2")
    return {"at": float(low), "by": step, "of": list(values.shape), "b64": b64encode(codes.tobytes()).decode("ascii")}


def drawn(view: View) -> set[str]:
    """Names of the figures that the page draws itself."""
    names = {"population", "traces", "hyper_traces", "posteriors"}
    names |= {"fit"} if _sides(view) is not None else set()
    flat = (len(one.inputs) != 2 or _law_lines(one) is not None for one in view.closures)
    return names | ({"closure"} if all(flat) else set())


def _room(numbers: int, ends: tuple[int, int]) -> int:
    """How many of each may be kept when there are `numbers` for each: 16 bits in base64 are 8/3 bytes."""
    return int(np.clip(ROOM * 3 / 8 / max(1, numbers), *ends))


def _palette(name: str) -> list[str]:
    colours = matplotlib.colormaps[name](np.linspace(0, 1, 17))
    return [matplotlib.colors.to_hex(colour) for colour in colours]


def _sides(view: View) -> list[np.ndarray] | None:
    """Coordinates along each side of the grid, of a curve one; None where it has no straight rows and columns."""
    if len(view.axes) == 1:
        return [view.grid[:, 0]]
    if view.shape is None or len(view.shape) != 2:
        return None
    first, second = (part.reshape(view.shape) for part in view.grid.T)
    straight = np.allclose(first, first[:, :1]) and np.allclose(second, second[:1])
    return [first[:, 0], second[0]] if straight else None


def _kept(view: View, sides: list[np.ndarray]) -> list[np.ndarray]:
    """Which points of the grid are shown, along each of its sides."""
    each = len(view.systems) * len(view.quantities) * 5
    most = _room(each, CURVE) if len(sides) == 1 else int(_room(each, (SIDE[0] ** 2, SIDE[1] ** 2)) ** 0.5)
    return [evenly(len(side), most) for side in sides]


def _grid(view: View) -> Json:
    """Where the shown solutions live: {"kind": "curve" | "field" | "none", "at": coordinates of each side}."""
    sides = _sides(view)
    if sides is None:
        return {"kind": "none", "at": []}
    at = [pack(side[kept]) for side, kept in zip(sides, _kept(view, sides))]
    return {"kind": "curve" if len(sides) == 1 else "field", "at": at}


def _thinned(view: View, sides: list[np.ndarray], part: np.ndarray) -> np.ndarray:
    """(system, quantity, point) with the points that are shown."""
    whole = part.reshape(*part.shape[:2], *map(len, sides))
    shown = np.ix_(*map(range, part.shape[:2]), *_kept(view, sides))
    return whole[shown].reshape(*part.shape[:2], -1)


def _systems(view: View, draws: np.ndarray) -> list[Json]:
    """Of each system: fits (curve, quantity, point), observations of each quantity, thinned draws."""
    sides, seen = _sides(view), _observations(view)
    named: dict[str, np.ndarray | None] = {"mean": view.fit_mean, "low": view.fit_low, "high": view.fit_high}
    named |= {"truth": view.truth_fit, "surrogate": view.surrogate_fit}
    fits = {name: _thinned(view, sides, part) for name, part in named.items() if part is not None and sides}
    kept = view.theta[np.ix_(view.shown_chains(), draws)]
    return [
        {
            "fit": [
                {"of": list(fits), "curves": pack(np.stack([part[system, q] for part in fits.values()]))}
                for q in range(len(view.quantities) if fits else 0)
            ],
            "seen": seen[system],
            "draws": [pack(kept[:, :, system, index]) for index in range(len(view.parameters))],
        }
        for system in range(len(view.systems))
    ]


def _observations(view: View) -> list[list[Json | None]]:
    """Of each system and quantity: columns value, low, high, and one a coordinate; None where nothing was observed."""
    found = {}
    for key, rows in view.observations.groupby(["system", "quantity"], sort=False, observed=True):
        some = rows.iloc[evenly(len(rows), 1000)]
        columns: Json = {column: pack(some[column]) for column in ("value", "low", "high")}
        found[key] = {"at": [pack(some[axis]) for axis in view.axes], **columns, "count": len(rows)}
    return [[found.get((system, quantity)) for quantity in view.quantities] for system in view.systems]


def _law(one: ClosureView) -> Json:
    """A law of one input as curves, of two as a field; of more, its name alone."""
    said: Json = {"name": one.name, "inputs": list(one.inputs), "known": one.known}
    if len(one.inputs) == 1:
        order = np.argsort(one.grid[:, 0])
        return said | {
            "x": pack(one.grid[order, 0]),
            "value": pack(one.value[order]),
            "truth": None if one.truth is None else pack(one.truth[order]),
            "density": pack(one.density[order]),
            "line": one.value_label(one.name),
            "undecided": {"name": one.undecided_label, "spans": one.undecided},
            "limits": _finite(one.limits()),
            "band": None if one.band is None else _band(one, one.band, order),
        }
    lines = _law_lines(one)
    if lines is None:
        return said
    # Columns along the first input, rows along the second, however the points were listed.
    order = np.lexsort((one.grid[:, 1], one.grid[:, 0]))
    level = one.visited_level()
    return said | {
        "at": [pack(line) for line in lines],
        "value": pack(one.value[order]),
        "truth": None if one.truth is None else pack(one.truth[order]),
        "visited": None if level is None else (one.density[order] >= level).astype(int).tolist(),
    }


def _band(one: ClosureView, band: BandView, order: np.ndarray) -> Json:
    """How sure a law is: its 95 % band, that of its prior, its slope (mean, band, truth), and single draws."""
    slopes = [band.slope, band.slope_low, band.slope_high, *([] if one.truth is None else [one.true_slope()])]
    return {
        "ends": [pack(side[order]) for side in (band.low, band.high)],
        "prior": None if band.prior is None else [pack(side[order]) for side in band.prior],
        "slopes": [pack(part[order]) for part in slopes],
        "slope_limits": _finite(one.slope_limits()),
        "draws": pack(band.draws[:, order]),
    }


def _law_lines(one: ClosureView) -> tuple[np.ndarray, np.ndarray] | None:
    if len(one.inputs) != 2:
        return None
    lines = np.unique(one.grid[:, 0]), np.unique(one.grid[:, 1])
    return lines if lines[0].size * lines[1].size == len(one.grid) else None


def _population(view: View, index: int) -> Json:
    """One parameter: the population's density with its band, and every system's estimate and intervals."""
    draws = view.theta[..., index].reshape(-1, len(view.systems))
    low, left, right, high = np.quantile(draws, [0.025, 0.25, 0.75, 0.975], axis=0)
    truth = np.full(len(view.systems), np.nan) if view.truth_theta is None else view.truth_theta[:, index]
    places, values = view.physical_ticks(index)
    density, shared = None, view.tau is not None and not view.tau[..., index].any()
    if view.mu is not None and view.tau is not None and not shared:
        x, curves = view.population_density(index)
        rows = [*curves]
        if view.truth_mu is not None and view.truth_tau is not None:
            rows.append(normal_density(x, float(view.truth_mu[index]), float(view.truth_tau[index])))
        kept = evenly(x.size, 150)
        density = {"x": pack(x[kept]), "curves": pack(np.stack(rows)[:, kept])}
    return {
        "density": density,
        "shared": bool(shared),
        "rows": pack(np.stack([low, left, draws.mean(0), right, high, truth])),
        "top": [[float(at), f"{value:z.6g}".replace("-", "−")] for at, value in zip(places, values)],
    }


def _draws(view: View, kept: np.ndarray) -> Json:
    """Draws of the population, and what all traces have in common."""
    chains = view.shown_chains()
    of = [
        {
            "name": part.title,
            "labels": list(part.labels),
            "draws": [pack(part.draws[..., i][np.ix_(chains, kept)]) for i in range(len(part.labels))],
            "truth": [None] * len(part.labels) if part.truth is None else _finite(part.truth),
        }
        for part in view.population
    ]
    truth = view.truth_theta
    return {
        "steps": (kept + 1).tolist(),
        "total": int(view.theta.shape[1]),
        "chains": [int(chain) + 1 for chain in chains],
        "all_chains": len(view.groups),
        "groups": [int(view.groups[chain]) for chain in chains],
        "population": of,
        "truth": None if truth is None else [_finite(row) for row in truth],
    }


def _history(table: pd.DataFrame) -> Json | None:
    """The course of the run, thinned, and where its phases begin."""
    if table.empty or "iteration" not in table:
        return None
    some = table.iloc[evenly(len(table), HISTORY)]
    columns = {name: pd.to_numeric(some[name], errors="coerce") for name in COURSE if name in some}
    course = [
        {"key": name, "name": COURSE[name], "values": pack(values)}
        for name, values in columns.items()
        if np.isfinite(values).any()
    ]
    phase = table["phase"].astype(str).to_numpy() if "phase" in table else np.full(len(table), "")
    starts = [0, *(np.flatnonzero(phase[1:] != phase[:-1]) + 1).tolist()]
    iteration = table["iteration"].to_numpy() + 1  # counted from one, as in the verdict
    phases = [{"name": phase[start], "from": float(iteration[start])} for start in starts]
    return {"iteration": pack(some["iteration"] + 1), "course": course, "phases": phases, "total": len(table)}


def _surrogate(view: View) -> Json | None:
    """Of each system, the root mean square of surrogate - solver over its solution, and of curves the difference itself, in
    units of its noise."""
    apart = view.surrogate_apart
    if apart is None:
        return None
    good = np.isfinite(apart)
    square = np.where(good, apart, 0.0) ** 2
    size = np.sqrt(square.sum((1, 2)) / np.where(good.any((1, 2)), good.sum((1, 2)), np.nan))
    sides = _sides(view) if len(view.axes) == 1 else None
    return {"size": pack(size), "apart": pack(_thinned(view, sides, apart)) if sides else None}


def _symmetric(observations: pd.DataFrame) -> bool:
    """Do error bars reach as far down as up?"""
    below, above = observations["value"] - observations["low"], observations["high"] - observations["value"]
    return bool(np.allclose(below, above, equal_nan=True))


def _finite(values: np.ndarray | tuple[float, ...] | None) -> list[float | None] | None:
    """Numbers as JSON knows them."""
    return None if values is None else [float(v) if np.isfinite(v) else None for v in values]
