"""The law move, the draw of the law's size and the independence proposal leave the joint density of everything as it is: see
`lawmoves`, where chains start from the prior, and data are drawn anew before every sweep, whatever the constants of the moves."""

import jax.numpy as jnp
import numpy as np
import pytest
from lawmoves import PLACES, SIZE, z_scores

from closura.laws import _law
from closura.sampling import Independence, LawMove, LawSize, PopulationGibbs, _law_move


@pytest.fixture(autouse=True)
def small_laws(monkeypatch):
    monkeypatch.setattr(_law.Law, "size_priors", (SIZE, SIZE))


MOVE = LawMove("f", observations=len(PLACES))
KERNELS = [Independence(), PopulationGibbs(), MOVE, LawSize()]
LAW = [MOVE, LawSize()]
ALONG = {"shear": 0.3, "sweeps": 80}
WAYS = {
    "straight": (KERNELS, {}),
    "bent": (KERNELS, {"power": 1.0}),
    "sums": (LAW, ALONG | {"power": 1.0}),
    "products": (LAW, ALONG | {"power": -1.0}),
    "ridges": (LAW, ALONG | {"power": 1.0, "walks": 3}),
}


@pytest.mark.parametrize("way", WAYS)
def test_everything_stays_as_the_prior_has_it(way):
    kernels, how = WAYS[way]
    z, accepted = z_scores(kernels, **how)
    step, draw, walk = accepted[-3:]
    assert step > 0.05
    assert draw > 0.01
    assert walk > 0.05 or not how.get("walks")
    assert np.abs(z).max() < 4.5, np.abs(z).max()


@pytest.mark.parametrize("way", ["sums", "ridges"])
def test_it_would_notice_a_curve_without_its_volume(way, monkeypatch):
    whole = _law_move.sheared

    def without(*args):
        moved, volume = whole(*args)
        return moved, jnp.where(jnp.isfinite(volume), 0.0, volume)

    monkeypatch.setattr(_law_move, "sheared", without)
    kernels, how = WAYS[way]
    z, _ = z_scores(kernels, **how)
    assert np.abs(z).max() > 6
