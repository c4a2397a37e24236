"""A prior over corrections to a known form: a stationary random function, orthogonal to what the form's parameters can do.

    g = s M(z),      Cov(M(z), M(z')) = matern(|z - z'| / LENGTH),      integral over [-1, 1] of  g d form / d theta_j = 0

M is twice differentiable (Matern 5/2) and has no polynomial part: far from data a correction is as large as anywhere, and the
law is the form give or take s. Orthogonal over the range that is stated, z from -1 to 1, it leaves to the parameters what is
theirs (Plumlee, Bayesian calibration of inexact computer models, 2017).
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ._basis import TREND, Conditioned, Values, largest, stationary

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
    def sizes(self) -> int:
        return 1

    @property
    def breaks(self) -> bool:
        return False

    def features(
        self, z: np.ndarray, side: np.ndarray, step: float, nodes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        free = {0: nodes, 1: nodes[nodes >= 0], -1: nodes[nodes > 0]}[self.parity]
        return largest(self.covariance, z, free, step, len(free)), np.full(len(free), TREND)

    def covariance(self, z: np.ndarray, at: np.ndarray, step: float) -> np.ndarray:
        """Of M, and of its gradient, at z with M(at)."""
        return stationary(z, at, step, self.parity, LENGTH)

    def conditioned(self, values: Values, kind: np.ndarray) -> Conditioned:
        places, weight = PLACES
        orthogonal = (weight[:, None] * self.shapes).T @ values(places)
        size = np.abs(orthogonal).max(axis=1, keepdims=True)
        fixed = values(np.array(list(self.through), float))
        rows = np.concatenate([orthogonal / np.where(size > 0, size, 1.0), fixed])
        wanted = np.array([0.0] * len(orthogonal) + list(self.through.values()))
        # All have one size: what is orthogonal to the conditions is independent of them, and the smallest solution is their mean.
        basis = np.linalg.svd(rows)[2][len(rows) :].T
        return Conditioned(basis, np.linalg.lstsq(rows, wanted)[0])
