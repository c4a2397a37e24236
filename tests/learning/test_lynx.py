"""Real data with a published posterior: hares and lynxes of the Hudson's Bay Company, 1900 to 1920.

Model, priors and reference (mean and standard deviation of 10,000 draws) are those of posteriordb's
hudson_lynx_hare-lotka_volterra (BSD-3-Clause). One system, noise of unknown size, no closure, no hierarchy.
"""

import math

import numpy as np
import pandas as pd
import pytest
from arviz_stats import ess

import closura as cl

pytestmark = pytest.mark.nightly

HARE = [
    30,
    47.2,
    70.2,
    77.4,
    36.3,
    20.6,
    18.1,
    21.4,
    22,
    25.4,
    27.1,
    40.3,
    57,
    76.6,
    52.3,
    19.5,
    11.2,
    7.6,
    14.6,
    16.2,
    24.7,
]
LYNX = [4, 6.1, 9.8, 35.2, 59.4, 41.7, 19, 13, 8.3, 9.1, 7.4, 8, 12.3, 19.5, 45.7, 51.1, 29.7, 15.8, 9.7, 10.1, 8.6]
REFERENCE = {
    "birth": (0.5468645, 0.0630516),
    "eaten": (0.0277473, 0.0041545),
    "death": (0.8000954, 0.0893657),
    "fed": (0.0240859, 0.0035279),
    "hare0": (34.0352225, 2.9167530),
    "lynx0": (5.9358971, 0.5305255),
    "hare": (0.2480569, 0.0432605),
    "lynx": (0.2510169, 0.0435882),
}
REFERENCE_DRAWS = 10_000


def physics(t, state, p):
    hare, lynx = state
    return (p.birth - p.eaten * lynx) * hare, (p.fed * hare - p.death) * lynx


@pytest.fixture(scope="module")
def result():
    rate, contact = cl.TruncatedNormal(1.0, 0.5), cl.TruncatedNormal(0.05, 0.05)
    start = cl.LogNormal(math.log(10), 1.0)
    problem = cl.ODE(
        physics,
        state=("hare", "lynx"),
        parameters={"birth": rate, "eaten": contact, "death": rate, "fed": contact, "hare0": start, "lynx0": start},
        initial=lambda p: (p.hare0, p.lynx0),
        span=(0.0, 20.0),
        observed=("hare", "lynx"),
        noise="lognormal",
        sigma=cl.LogNormal(-1.0, 1.0),
    )
    frame = pd.DataFrame({"system": "hudson", "time": np.arange(21.0), "hare": HARE, "lynx": LYNX})
    return cl.fit(problem, frame, hierarchy=False, draws=1000, progress=False)  # tails are long


def test_it_converges(result):
    assert result.verdict.lines[0] == "Converged."


@pytest.mark.parametrize("name", REFERENCE)
def test_published_posterior(result, name):
    posterior, (mean, sd) = result.posterior, REFERENCE[name]
    draws = posterior["sigma"].sel(quantity=name) if name in ("hare", "lynx") else posterior[name].isel(system=0)
    draws = draws.values.astype(float)
    error = math.hypot(draws.std() / math.sqrt(float(ess(draws))), sd / math.sqrt(REFERENCE_DRAWS))
    assert abs(draws.mean() - mean) < 4 * error
    assert draws.std() / sd == pytest.approx(1, abs=0.05)
