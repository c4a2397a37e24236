"""Populations: p(phi) and p(theta | phi)."""

from ._correlation import correlation_factor as correlation_factor
from ._population import TRIES as TRIES
from ._population import Correlated as Correlated
from ._population import Diagonal as Diagonal
from ._population import Effects as Effects
from ._population import Independent as Independent
from ._population import Phi as Phi
from ._population import draw_log_variance as draw_log_variance
from ._population import log_prior as log_prior
from ._random import normal as normal
from ._random import uniforms as uniforms
from ._sharing import Population as Population
from ._sharing import Sharing as Sharing
from ._sharing import population as population
from ._slice import NUMBERS as NUMBERS
from ._slice import slice_draw as slice_draw
