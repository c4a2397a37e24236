"""Populations: p(phi) and p(theta | phi)."""

from ._base import Population as Population
from ._correlation import correlation_factor as correlation_factor, correlations as correlations
from ._empirical import Empirical as Empirical, PopulationDraws as PopulationDraws
from ._population import (
    TRIES as TRIES,
    Correlated as Correlated,
    Diagonal as Diagonal,
    Effects as Effects,
    Independent as Independent,
    Phi as Phi,
    draw_log_variance as draw_log_variance,
)
from ._random import normal as normal, uniforms as uniforms
from ._sharing import POPULATIONS as POPULATIONS, Sharing as Sharing, alone as alone, population as population
from ._slice import NUMBERS as NUMBERS, slice_draw as slice_draw
