"""Figures and report of a fleet of forced damped oscillators  u'' + f(u') + k u = 10 sin t."""

from dataclasses import replace

import numpy as np
import pandas as pd

from closura.show._view import ClosureView, View

TIMES = np.linspace(0, 8, 161)


def damping(v):
    return 0.6 * v + 0.06 * v**3


def solve(theta):
    """Trajectories (..., state, time) by Runge-Kutta; theta = (log k, u0, v0)."""
    k, step = np.exp(theta[..., 0]), TIMES[1] - TIMES[0]

    def slope(t, y):
        return np.stack([y[1], 10 * np.sin(t) - damping(y[1]) - k * y[0]])

    y, path = np.stack([theta[..., 1], theta[..., 2]]), []
    for t in TIMES:
        path.append(y)
        a = slope(t, y)
        b = slope(t + step / 2, y + step / 2 * a)
        c = slope(t + step / 2, y + step / 2 * b)
        d = slope(t + step, y + step * c)
        y = y + step / 6 * (a + 2 * b + 2 * c + d)
    return np.moveaxis(np.stack(path), (0, 1), (-1, -2))


def correlated(rng, shape):
    """Draws with a little memory along axis 1, as a sampler leaves them."""
    noise = rng.normal(size=shape)
    for draw in range(1, shape[1]):
        noise[:, draw] = 0.6 * noise[:, draw - 1] + 0.8 * noise[:, draw]
    return noise


def make_view(systems=12, chains=16, draws=150, seed=0):
    rng = np.random.default_rng(seed)
    mu, tau = np.array([np.log(5), 0.0, 2.0]), np.array([0.03, 2.0, 2.0])
    truth = mu + np.sqrt(tau) * rng.normal(size=(systems, 3))
    sd = np.array([0.04, 0.12, 0.35])
    centre = truth + sd * rng.normal(size=truth.shape)
    theta = centre + sd * correlated(rng, (chains, draws, systems, 3))
    physical = np.concatenate([np.exp(theta[..., :1]), theta[..., 1:]], -1)
    fits = solve(theta[:4, :: max(1, draws // 15)])[..., :1, :].reshape(-1, systems, 1, TIMES.size)
    exact = solve(truth)
    names = tuple(f"unit {i + 1:02d}" for i in range(systems))
    at = np.arange(0, 161, 13)
    observations = pd.DataFrame(
        [
            (name, TIMES[j], "u", exact[i, 0, j] + 0.15 * rng.normal(), 0.15)
            for i, name in enumerate(names)
            for j in at
        ],
        columns=["system", "time", "quantity", "value", "sigma"],
    )
    v = np.linspace(-7, 7, 200)
    visited = exact[:, 1].ravel()
    low, high = np.quantile(visited, [0.005, 0.995])
    density = np.exp(-0.5 * ((v[:, None] - visited) / 0.4) ** 2).mean(1) / (0.4 * np.sqrt(2 * np.pi))
    learned = damping(v) + 0.15 * np.sin(1.3 * v) + 0.4 * np.maximum(v - high, 0) ** 2
    law = ClosureView("f", ("v",), v[:, None], learned, density, (low, high), damping(v))
    iterations = np.arange(0, 1200, 10)
    history = pd.DataFrame({
        "iteration": iterations,
        "acceptance": 0.6 + 0.05 * rng.normal(size=iterations.size),
        "loglik": -400 + 300 * (1 - np.exp(-iterations / 200)),
        "temperature": np.clip(iterations / 480, 1e-3, 1),
        "step_size": 0.8,
        "phase": np.where(iterations < 480, "warm-up", np.where(iterations < 900, "learn", "sample")),
    })
    metrics = {
        "problem": "mass-damper", "forward": "solver", "hierarchical": True, "oracle": False, "systems": systems,
        "chains": chains, "iterations": 1200, "seed": 0, "theta_mse": 0.0211, "coverage_2sd": 0.967,
        "closure_mse": 0.365, "closure_mse_visited": 0.021, "surrogate_error": None, "mu": [1.61, 0.02, 1.94],
        "noise_sd": 0.15, "rhat_max": 1.0094, "ess_bulk_min": 2143.4, "ess_tail_min": 1801.2, "seconds_total": 71.3,
        "seconds_per_iteration": 0.025, "peak_rss_mb": 812.0, "converged": True, "warnings": [],
    }
    return View(
        title="Mass-damper, 12 units", converged=True,
        verdict=["Converged: the results can be used.", "R-hat is 1.009 (at most 1.01 is asked).",
                 "Outside v in [-5.1, 5.3] the law is extrapolated: do not read it there."],
        parameters=("k", "u0", "v0"), labels=("log k", "u0", "v0"), systems=names, theta=theta, physical=physical,
        groups=np.arange(chains) % 2,
        mu=mu + np.sqrt(tau / systems) * correlated(rng, (chains, draws, 3)),
        tau=tau * np.exp(0.3 * correlated(rng, (chains, draws, 3))),
        grid=TIMES, quantities=("u",), fit_mean=fits.mean(0), fit_low=np.quantile(fits, 0.025, axis=0),
        fit_high=np.quantile(fits, 0.975, axis=0), observations=observations, closures=[law], history=history,
        metrics=metrics, settings={"forward": "solver", "seed": 0, "sampler": {"blocks": "system", "chains": 16}},
        truth_theta=truth, truth_mu=mu, truth_tau=tau, truth_fit=exact[:, :1],
    )
