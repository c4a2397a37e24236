"""A prior over corrections to a known form: a stationary random function, orthogonal to what the form's parameters can do.

    g = s M(z),      Cov(M(z), M(z')) = matern(|z - z'| / LENGTH),      integral over [-1, 1] of  g d form / d theta_j = 0

M is twice differentiable (Matern 5/2) and has no polynomial part: far from data a correction is as large as anywhere, and the
law is the form give or take s. Orthogonal over the range that is stated, z from -1 to 1, it leaves to the parameters what is
theirs (Plumlee, Bayesian calibration of inexact computer models, 2017).
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ._basis import Values, whitening

LENGTH = 0.7  # over which a correction changes, in units of the input: a third of the range
AMPLITUDE = 0.5  # sd of the half-normal prior of s, in units of the law
PLACES = np.polynomial.legendre.leggauss(64)


class Stationary(NamedTuple):
    """A correction with a symmetry (+1 even, -1 odd, 0 none), values it must take, z -> g, and `shapes` (place, parameter) it is
    orthogonal to, at the Gauss-Legendre places of [-1, 1]."""

    parity: int
    through: Mapping[float, float]
    shapes: np.ndarray

    @property
    def breaks(self) -> bool:
        return False

    def features(self, z: np.ndarray, side: np.ndarray, step: float) -> tuple[np.ndarray, np.ndarray]:
        free = {0: z, 1: z[z >= 0], -1: z[z > 0]}[self.parity]
        weights = whitening(self.covariance(free, free), len(free))
        value, gradient = (self.covariance(z, free, order) @ weights for order in (0, 1))
        return np.stack([value, step * gradient], axis=1), np.ones(len(free), bool)

    def covariance(self, z: np.ndarray, at: np.ndarray, derivative: int = 0) -> np.ndarray:
        """Of M, or of its derivative in z, with M(at)."""
        plain = matern(z[:, None] - at, derivative)
        return plain + self.parity * matern(z[:, None] + at, derivative)

    def conditions(self, values: Values) -> tuple[np.ndarray, np.ndarray]:
        places, weight = PLACES
        orthogonal = (weight[:, None] * self.shapes).T @ values(places)
        size = np.abs(orthogonal).max(axis=1, keepdims=True)
        fixed = values(np.array(list(self.through), float))
        rows = np.concatenate([orthogonal / np.where(size > 0, size, 1.0), fixed])
        return rows, np.array([0.0] * len(orthogonal) + list(self.through.values()))


def matern(z: np.ndarray, derivative: int = 0) -> np.ndarray:
    """Covariance of places z apart, or its derivative: Matern 5/2."""
    u = np.sqrt(5) * np.abs(z) / LENGTH
    if derivative:
        return -np.sign(z) * np.sqrt(5) / LENGTH * u * (1 + u) / 3 * np.exp(-u)
    return (1 + u + u**2 / 3) * np.exp(-u)
