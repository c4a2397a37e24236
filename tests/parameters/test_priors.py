"""Prior families: densities and quantiles against SciPy's, and messages."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from closura.parameters._priors import Gamma, HalfNormal, LogNormal, Normal, TruncatedNormal, Uniform

FAMILIES = [
    Normal(2.0, 0.5),
    LogNormal(-1.0, 1.0),
    TruncatedNormal(1.0, 0.5),
    TruncatedNormal(-3.0, 1.0, 0.5, 2.0),
    HalfNormal(3.0),
    Gamma(2.5, 0.7),
    Uniform(-1.0, 4.0),
]


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("prior", FAMILIES, ids=str)
def test_density_and_quantiles(prior):
    share = np.linspace(0.01, 0.99, 23)
    value = prior.quantile(share)
    low, high = prior.support
    assert np.all((value > low) & (value < high))
    np.testing.assert_allclose(jax.jit(prior.log_density)(jnp.asarray(value)), prior._frozen().logpdf(value), rtol=1e-9)
    # And SciPy's is the family that is meant: a density that integrates to one over the support, with these quantiles.
    ends = prior.quantile(np.array([1e-9, 1 - 1e-9]))
    grid = np.linspace(*ends, 200_001)
    mass = np.exp(np.asarray(prior.log_density(jnp.asarray(grid))))
    inside = np.cumsum(0.5 * (mass[1:] + mass[:-1])) * (grid[1] - grid[0])
    assert inside[-1] == pytest.approx(1.0, abs=1e-3)
    assert np.interp(prior.quantile(0.3), grid[1:], inside) == pytest.approx(0.3, abs=1e-3)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Normal(0.0, 0.0), r"Normal\(mean=0.0, sd=0.0\): sd must be positive"),
        (lambda: Gamma(2.0, -1.0), "rate must be positive"),
        (lambda: Normal(float("nan"), 1.0), "mean must be a number"),
        (lambda: LogNormal("a", 1.0), "log_mean must be a number"),
        (lambda: TruncatedNormal(1.0, 1.0, 2.0, 1.0), "low must be below high"),
        (lambda: TruncatedNormal(-50.0, 1.0), "hardly anything"),
        (lambda: Uniform(1.0, 1.0), "low must be below high"),
        (lambda: Uniform(0.0, float("inf")), "both finite"),
    ],
)
def test_messages(make, says, monkeypatch):
    import jaxtyping

    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(ValueError, match=says):
        make()
