"""Constants of the moves of a law, from Gauss-Newton information and draws of one group; on the host, in double precision."""

import numpy as np

from ..laws import Frame
from ._gauss_newton import picked
from ._law_size import Known, informed_count

LARGE = 0.95  # judged at this quantile of the law's size
POWERS, TINY = (0.0, 1.0, -1.0), 1e-9
BENT = 0.1  # by which part of the variance about it a curve must be nearer to draws than a straight line
RIDGES, MUCH = 4, 5.0  # how many are walked along; what is lost there, in units of the precision that is left
IGNORED = 0.3  # information, in units of the prior's precision, of all directions that data are taken not to know
VARIED = 0.3  # of the variance of log sizes is taken to be one
KNOWN = 0.1  # what data would know if nothing followed, counted for this much of what they know


@np.errstate(
    over="ignore", divide="ignore", invalid="ignore"
)  # chains that are lost stand anywhere: a straight line does for them
def curved(theta: np.ndarray, straight: np.ndarray, logs: tuple[bool, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The power of every parameter of one group, and the places that go with it: the one with which draws `theta` (draw,
    system, parameter) are nearest to where the law has them, which would be `straight` away on a straight line."""
    some, count = theta[picked(len(theta))], theta.shape[-1]
    # Where information that is averaged over some draws has the gradient of exp(n theta), if that is the same at all.
    places = [some.mean(axis=0)]
    missed = [np.log(np.var(theta - straight, axis=0) + TINY).sum(axis=0) - BENT * theta.shape[1]]
    for power in POWERS[1:]:
        weight = np.exp(some * (1 + power) / 2)
        places.append(np.log(np.sum(weight * np.exp(some), axis=0) / np.sum(weight, axis=0)))
        curve = np.log(np.maximum(1 + power * straight, TINY)) / power
        missed.append(np.log(np.var(theta - curve, axis=0) + TINY).sum(axis=0))
    allowed = np.array(logs, bool) & np.all(np.isfinite(places[1]) & np.isfinite(places[2]), axis=0)
    best = np.where(allowed, np.argmin(np.nan_to_num(missed, nan=np.inf), axis=0), 0)
    return np.array(POWERS)[best], np.stack(places)[best, :, np.arange(count)].T


def whitened(
    information: np.ndarray, alone: np.ndarray, a: np.ndarray, sizes: np.ndarray, frame: Frame
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Known]:
    """Constants of one group, up to the sensitivities, from draws `a` (draw, coordinate) and their log sizes (draw, size);
    `alone` is the information where nothing follows."""
    size = sizes.mean(axis=0)
    flexible = frame.flexible * np.exp(-size)[:, None]
    wide = 1 / np.sqrt(frame.rigid + flexible.sum(axis=0))
    # In units of the prior, where information may be as large as it likes: of rounding, nothing is left below zero.
    value, vector = np.linalg.eigh(wide[:, None] * information * wide)
    root = wide[:, None] * vector / np.sqrt(1 + np.maximum(value, 0.0))  # root root' is the covariance
    color = root @ np.linalg.eigh((root.T * flexible[-1]) @ root)[1]
    share = np.clip(flexible @ color**2, 0.0, 1.0)
    # In units of what the prior leaves open where the law is large.
    large = 1 / np.sqrt(frame.rigid + np.exp(-np.quantile(sizes, LARGE, axis=0)) @ frame.flexible)
    told, direction = np.linalg.eigh(large[:, None] * (information + KNOWN * alone) * large)
    counted = direction[:, ::-1] * (np.cumsum(told) > IGNORED)[::-1]
    counted = counted[:, : informed_count(len(color))]
    precision = (large[:, None] * counted).T @ information @ (large[:, None] * counted)
    # Few draws, that have not come far yet: nearly as wide as sizes usually are.
    varied = (1 - VARIED) * np.cov(sizes.T).reshape(len(size), -1) + VARIED * np.eye(len(size))
    return color, share, size, np.linalg.cholesky(varied), _known(counted / large[:, None], precision, a, sizes, frame)


def _known(directions: np.ndarray, precision: np.ndarray, a: np.ndarray, sizes: np.ndarray, frame: Frame) -> Known:
    """With the score at zero with which the mean of t is that of its draws."""
    eye, nothing = np.eye(directions.shape[1]), np.all(directions == 0, axis=0)
    mean = np.zeros_like(eye)
    for one in sizes[picked(len(sizes))]:
        before = (directions.T / (frame.rigid + np.exp(-one) @ frame.flexible)) @ directions + np.diag(1.0 * nothing)
        mean += np.linalg.solve(eye + before @ precision, before) / len(picked(len(sizes)))
    return Known._make((directions, precision, np.linalg.solve(mean, directions.T @ a.mean(axis=0))))


def ridges(color: np.ndarray, eliminated: np.ndarray, a: np.ndarray, confined: bool) -> tuple[np.ndarray, np.ndarray]:
    """Directions of one group in which data would know the law much better if nothing followed, the first ones first, and
    whether that is so, and steps are short: `eliminated` is the information that is lost as all else follows."""
    lost, turn = np.linalg.eigh(color.T @ eliminated @ color)
    most = np.argsort(-lost)[:RIDGES]
    wide = np.std(np.linalg.solve(color @ turn, a.T)[most], axis=1)
    return (color @ turn[:, most]).T * np.maximum(wide, 1.0)[:, None], (lost[most] > MUCH) & confined
