"""Families of noise, one a file; a problem names one of these or brings its own, derived from `Noise`."""

import math

import jax.numpy as jnp
import numpy as np

from ...data import Observations, by_quantity
from ...equations import NOISES, Equation, ProblemError
from ...parameters import LogNormal
from ._base import Measured as Measured, Noise as Noise, NoisePrior as NoisePrior, ResidualStats as ResidualStats
from ._lognormal import Lognormal as Lognormal
from ._negative_binomial import NegativeBinomial as NegativeBinomial
from ._normal import Normal as Normal
from ._poisson import Poisson as Poisson
from ._student import Student as Student

NOISES.update({family.name: family for family in (Normal(), Lognormal(), Student(), Poisson(), NegativeBinomial())})


def noise_of(problem: Equation) -> Noise:
    """The family of a problem's noise."""
    if not isinstance(problem.noise, Noise):
        raise ProblemError(f"noise={problem.noise!r}: derive a family of your own from cl.Noise")
    return problem.noise


def noise_prior(problem: Equation, data: Observations) -> tuple[NoisePrior | None, list[str]]:
    """What is to be inferred of the noise of these (matched) data, and in words what is believed of it before."""
    noise, priors, free, said = noise_of(problem), [], [], []
    for number, (name, stated) in enumerate(by_quantity(problem.sigma, data.quantities).items()):
        here = data.mask & (data.quantity == number)
        free.append(noise.has_scale and bool(np.isnan(data.sigma[here]).any()))
        prior = stated if isinstance(stated, LogNormal) else noise.default_prior(data.value[here])
        priors.append(prior)
        if free[-1] and prior is not stated:
            said.append(
                f"noise of {name}: not given, inferred; before data log-normal about {math.exp(prior.log_mean):.3g}, within a "
                f"factor {math.exp(prior.log_sd):.2g} (give sigma, or a prior for it as sigma=cl.LogNormal(...), to change that)"
            )
    if not any(free):
        return None, []
    mean, sd = (jnp.asarray([getattr(p, part) for p in priors], float) for part in ("log_mean", "log_sd"))
    return NoisePrior(mean, sd**2, tuple(free)), said
