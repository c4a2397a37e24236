"""Which prior of a law is right for laws of many shapes? The mass-damper linearised about its truth, theta eliminated: a data
set takes a tenth of a second where a fit takes half a minute, and its bands are those of fits to a few per cent.

python benchmarks/law_prior.py [--first SEED] [--sets COUNT] [--systems K ...] [--unit UNIT]

    y_k = J_k (a - a*) + S_k (theta_k - theta_k*) + noise,     f = basis a,    theta_k ~ N(mu, tau)

Nothing of closura is used: f is a cubic spline with a constant third derivative in each cell, which is what the trend is made
of; detail is a Matern process at its nodes. Given both sizes a is normal, given a the sizes are drawn on a grid. The prior
was chosen on the seeds that are the default; others judge it.
"""

import argparse
import itertools
import sys
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from _common import heading, table

FIRST_SEED, CELLS, DRAWS, BURN = 1000, 32, 700, 150
SIGMA, STEP, EVERY, STEPS = 0.15, 0.02, 32, 384  # of the observations, and of the integration between them
MU, TAU = np.array([np.log(5.0), 0.0, 2.0]), np.array([0.03, 2.0, 2.0])
PLACES = np.linspace(-5, 5, 101)
SIZES = np.linspace(-16, 16, 321)  # of log s^2
Law = Callable[[np.ndarray], np.ndarray]
# Each with its gradient.
TRUTHS: dict[str, tuple[Law, Law]] = {
    "0.08 v^3 + 0.08 v": (lambda v: 0.08 * v**3 + 0.08 * v, lambda v: 0.24 * v**2 + 0.08),
    "tanh(2v)": (lambda v: np.tanh(2 * v), lambda v: 2 / np.cosh(2 * v) ** 2),
    "0.5 v abs(v)": (lambda v: 0.5 * v * np.abs(v), np.abs),
    "0.4 sin(2v) + 0.2v": (lambda v: 0.4 * np.sin(2 * v) + 0.2 * v, lambda v: 0.8 * np.cos(2 * v) + 0.2),
    "3v^2/(4 + v^2) sign(v)": (
        lambda v: 3 * v**2 / (4 + v**2) * np.sign(v),
        lambda v: 24 * np.abs(v) / (4 + v**2) ** 2,
    ),
}


class Prior(NamedTuple):
    """Means and sds of log s^2 of the trend and of the detail (no detail where its length is zero)."""

    trend: tuple[float, float]
    detail: tuple[float, float] = (0.0, 1.0)
    length: float = 0.0


PRIORS = {
    "trend, N(0, 2^2)": Prior((0.0, 2.0)),
    "trend, N(5.2, 1.5^2)": Prior((5.2, 1.5)),
    "trend, N(7, 0.7^2)": Prior((7.0, 0.7)),
    "trend and detail": Prior((2.0, 1.5), (2 * np.log(0.08), 1.5), 0.25),
}


class Linear(NamedTuple):
    """One data set: information and score of the law's coordinates, where its law was visited, and the truth there."""

    information: np.ndarray
    score: np.ndarray
    basis: np.ndarray  # (place, coordinate)
    visits: np.ndarray
    truth: np.ndarray


def spline(z: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """1, z, z^2 / 2, and the splines whose third derivative is that of white noise in one cell."""

    def cube(x: np.ndarray) -> np.ndarray:
        return np.maximum(x, 0) ** 3 / 6

    cells = []
    for low, high in itertools.pairwise(nodes):
        right = low >= -1e-9
        cells.append(cube(z - low) - cube(z - high) if right else cube(high - z) - cube(low - z))
    return np.stack([np.ones_like(z), z, z**2 / 2, *(cell / np.sqrt(nodes[1] - nodes[0]) for cell in cells)], axis=-1)


def matern(apart: np.ndarray, length: float) -> np.ndarray:
    u = np.sqrt(5) * np.abs(apart) / length
    return (1 + u + u**2 / 3) * np.exp(-u)


def features(z: np.ndarray, nodes: np.ndarray, length: float) -> np.ndarray:
    """Columns whose coordinates are standard normal when sizes are one."""
    if not length:
        return spline(z, nodes)
    value, vector = np.linalg.eigh(matern(nodes[:, None] - nodes, length))
    inside = np.clip(z, nodes[0], nodes[-1])
    detail = matern(inside[..., None] - nodes, length) @ (vector / np.sqrt(np.maximum(value, 1e-10)))
    return np.concatenate([spline(z, nodes), detail], axis=-1)


def data_set(truth: tuple[Law, Law], systems: int, seed: int, unit: float, length: float) -> Linear:
    """Trajectories by Runge and Kutta, their sensitivities by Heun, and the noise."""
    random, (f, gradient) = np.random.default_rng(seed), truth
    theta = MU + np.sqrt(TAU) * random.normal(size=(systems, 3))
    k, path = np.exp(theta[:, 0]), [theta[:, 1:].T]
    for i in range(STEPS):
        path.append(
            _runge_kutta(lambda t, y: np.stack([y[1], 10 * np.sin(t) - f(y[1]) - k * y[0]]), i * STEP, path[-1])
        )
    u, v = np.moveaxis(np.array(path), 1, 0)
    low, high = np.quantile(v, [0.025, 0.975])
    center, scale = (low + high) / 2, (high - low) / 2
    ends = (np.array([v.min(), v.max()]) - center) / scale * 1.15
    width = (ends[1] - ends[0]) / CELLS
    nodes = width * (np.arange(CELLS + 1) - np.ceil(-ends[0] / width))
    columns = unit * features((v - center) / scale, nodes, length)
    source = np.concatenate([-(k * u)[..., None], np.zeros((*u.shape, 2)), -columns, -f(v)[..., None]], axis=-1)
    by = _sensitivities(source, gradient(v), k)
    by_theta, by_law, by_truth = by[..., :3], by[..., 3:-1], by[..., -1]
    weight = np.linalg.inv(SIGMA**2 * np.eye(by.shape[1]) + np.einsum("kop,p,kqp->koq", by_theta, TAU, by_theta))
    seen = by_truth + SIGMA * random.normal(size=by_truth.shape) - np.einsum("kop,kp->ko", by_theta, MU - theta)
    information = np.einsum("koi,koq,kqj->ij", by_law, weight, by_law)
    visits = np.histogram(v, np.append(PLACES - 0.05, 5.05))[0] / v.size
    basis = unit * features((PLACES - center) / scale, nodes, length)
    return Linear(information, np.einsum("koi,koq,kq->i", by_law, weight, seen), basis, visits, f(PLACES))


def _runge_kutta(rate: Callable[[float, np.ndarray], np.ndarray], t: float, y: np.ndarray) -> np.ndarray:
    a = rate(t, y)
    b = rate(t + STEP / 2, y + STEP / 2 * a)
    c = rate(t + STEP / 2, y + STEP / 2 * b)
    return y + STEP / 6 * (a + 2 * b + 2 * c + rate(t + STEP, y + STEP * c))


def _sensitivities(source: np.ndarray, damping: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Of u at the times of observation, (system, observation, direction): log k, u0, v0 and what drives the law."""
    u, v = np.zeros((2, *source.shape[1:]))
    u[:, 1], v[:, 2], found = 1.0, 1.0, []

    def rate(i: int, u: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return v, source[i] - damping[i][:, None] * v - k[:, None] * u

    for i in range(STEPS + 1):
        if i % EVERY == 0:
            found.append(u)
        if i < STEPS:
            first = rate(i, u, v)
            second = rate(i + 1, u + STEP * first[0], v + STEP * first[1])
            u, v = (x + STEP / 2 * (a + b) for x, a, b in zip((u, v), first, second, strict=True))
    return np.moveaxis(np.array(found), 0, 1)


def posterior(sets: list[Linear], prior: Prior) -> np.ndarray:
    """Draws of the coordinates, (draw, data set, coordinate), by turns with the sizes."""
    random, count = np.random.default_rng(0), sets[0].information.shape[0]
    information, score = (np.stack([getattr(one, name) for one in sets]) for name in ("information", "score"))
    groups = [(slice(3, 3 + CELLS), prior.trend), (slice(3 + CELLS, count), prior.detail)]
    log_size, kept = np.repeat([[prior.trend[0], prior.detail[0]]], len(sets), axis=0), []
    for draw in range(DRAWS):
        precision = np.concatenate(
            [
                np.full((len(sets), 3), 1 / 9),
                *(np.repeat(np.exp(-log_size[:, [i]]), n, axis=1) for i, n in enumerate((CELLS, count - 3 - CELLS))),
            ],
            axis=1,
        )
        matrix = information + precision[:, None] * np.eye(count)
        upper = np.swapaxes(np.linalg.cholesky(matrix), 1, 2)
        noise = np.linalg.solve(upper, random.normal(size=(len(sets), count, 1)))
        a = (np.linalg.solve(matrix, score[..., None]) + noise)[..., 0]
        for i, (part, (mean, sd)) in enumerate(groups):
            c = a[:, part]
            density = -0.5 * ((SIZES - mean) / sd) ** 2 - 0.5 * c.shape[1] * SIZES
            density = density - 0.5 * np.sum(c**2, axis=1)[:, None] * np.exp(-SIZES)
            log_size[:, i] = SIZES[np.argmax(density + random.gumbel(size=density.shape), axis=1)]
        if draw >= BURN:
            kept.append(a)
    return np.array(kept)


def judged(sets: list[Linear], draws: np.ndarray) -> list[str]:
    """Coverage where data were, width of the band there, and error of the mean on [-5, 5]."""
    covered, width, error = [], [], []
    for i, one in enumerate(sets):
        law = draws[:, i] @ one.basis.T
        low, high = np.quantile(law, [0.025, 0.975], axis=0)
        weight = one.visits / one.visits.sum()
        covered.append(weight @ ((low <= one.truth) & (one.truth <= high)))
        width.append(weight @ (high - low))
        error.append(np.mean((law.mean(axis=0) - one.truth) ** 2))
    spread = np.std(covered, ddof=1) / np.sqrt(len(covered))
    return [f"{np.mean(covered):.3f} ± {spread:.3f}", f"{np.mean(width):.2f}", f"{np.mean(error):.3f}"]


def main(arguments: list[str]) -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--first", type=int, default=FIRST_SEED)
    options.add_argument("--sets", type=int, default=16)
    options.add_argument("--systems", type=int, nargs="+", default=[3, 10, 20])
    options.add_argument("--unit", type=float, default=10.0)
    asked = options.parse_args(arguments)
    heading(
        f"Priors of a law in the linearised mass-damper, {asked.sets} data sets from seed {asked.first}, unit {asked.unit:g}"
    )
    seeds, rows = range(asked.first, asked.first + asked.sets), []
    for systems in asked.systems:
        for name, truth in TRUTHS.items():
            for label, prior in PRIORS.items():
                sets = [data_set(truth, systems, seed, asked.unit, prior.length) for seed in seeds]
                rows.append([systems, name, label, *judged(sets, posterior(sets, prior))])
    print(table(["K", "law", "prior", "band covers where data were", "its width", "MSE on [-5, 5]"], rows))


if __name__ == "__main__":
    main(sys.argv[1:])
