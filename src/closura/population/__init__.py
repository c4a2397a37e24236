"""Populations: p(phi) and p(theta | phi)."""

from ._base import Population as Population
from ._correlation import correlations as correlations
from ._empirical import Empirical as Empirical, PopulationDraws as PopulationDraws
from ._population import (
    Correlated as Correlated,
    Diagonal as Diagonal,
    Effects as Effects,
    Independent as Independent,
    Phi as Phi,
)
from ._random import (
    NUMBERS as NUMBERS,
    TRIES as TRIES,
    chi_square as chi_square,
    chi_square_numbers as chi_square_numbers,
    draw_log_variance as draw_log_variance,
    normal as normal,
    slice_draw as slice_draw,
    uniforms as uniforms,
)
from ._sharing import POPULATIONS as POPULATIONS, Sharing as Sharing, alone as alone, population as population
