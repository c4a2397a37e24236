"""How long each phase takes, and what changes with the iteration."""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from ._settings import Settings
from ._setup import Schedule

FIRST_TEMPERATURE = 1e-3
STORED_NUMBERS = 60_000_000
LONGER = 2  # an extension is as long as all of sampling before it, over this
MOST_KEPT = 6.0  # times the draws of a run that is not extended; of a longer one every other is let go ...
MOST_STORED = 1.5 * STORED_NUMBERS  # ... and earlier, if that is more than this


class Plan(NamedTuple):
    """Iterations of each phase, in whole chunks, so that every program is compiled once."""

    learn_chunk: int
    learn: int
    keep: int
    thin: int
    tune: int
    sample: int
    most: float = MOST_KEPT  # draws that are kept of a run however long, times those of one that is not extended

    @property
    def sample_chunk(self) -> int:
        return self.keep * self.thin


def make_plan(settings: Settings, numbers: int, newton: bool = False) -> Plan:
    """`numbers` is how many one kept draw of all chains has: huge fleets keep fewer draws, further apart, in smaller chunks.
    Where sampled laws are learned, a chunk of learning goes from one Newton step to the next."""
    size = max(5, min(settings.chunk, 3_000_000 // numbers))
    round_ = settings.newton_every if newton else size
    thin = settings.thin * max(1, -(-settings.draws * numbers // STORED_NUMBERS))
    draws = max(1, settings.draws * settings.thin // thin)
    chunks = -(-settings.iterations // round_)
    learn_chunk = -(-settings.iterations // chunks)
    sample_chunks = -(-draws // max(1, min(draws, size // thin)))
    keep = -(-draws // sample_chunks)
    # At least two: the last one finds step sizes for the preconditioner that the others found.
    tune_chunks = max(2, -(-settings.tune // (keep * thin))) if settings.tune else 0
    kept = sample_chunks * keep
    most = min(MOST_KEPT, max(1.5, MOST_STORED / (kept * numbers)))
    return Plan(learn_chunk, chunks * learn_chunk, keep, thin, tune_chunks * keep * thin, kept * thin, most)


def passes(extended: int) -> int:
    """How long sampling is after so many extensions, in units of what it is without: chains that mix slowly are not helped by as much
    again each time, so every extension is half as long as all before it."""
    total = 1
    for _ in range(extended):
        total += max(1, total // LONGER)
    return total


def stride(extended: int, most: float = MOST_KEPT) -> int:
    """Every so-many-th draw is kept of a run with so many extensions, of which `most` times those of one without any."""
    return 1 << max(0, math.ceil(math.log2(passes(extended) / most)))


def temperatures(settings: Settings, now: np.ndarray) -> np.ndarray:
    """The likelihood comes in slowly, up to the part `tempering` of learning; `now` is which part of it is over."""
    warm = np.minimum(1.0, now / settings.tempering) if settings.tempering else np.ones(len(now))
    return FIRST_TEMPERATURE ** (1 - warm)


def learning_rates(settings: Settings, now: np.ndarray, surrogate: bool) -> tuple[np.ndarray, np.ndarray]:
    """Of law and surrogate: a cosine to a fiftieth; the surrogate begins alone, and goes on alone at the end."""

    def cosine(place: np.ndarray) -> np.ndarray:
        return 0.02 + 0.98 * 0.5 * (1 + np.cos(np.pi * np.minimum(1.0, place)))

    first, last = (settings.surrogate_warmup, 1 - settings.surrogate_finetune) if surrogate else (0.0, 1.0)
    place = (now - first) / (last - first)
    law = settings.learning_rate * np.where((place >= 0) & (place < 1), cosine(place), 0.0)
    return law, settings.surrogate_rate * cosine(now)


def learn_schedule(settings: Settings, now: np.ndarray, surrogate: bool, slower: float = 1.0) -> Schedule:
    """Of iterations of learning, at which parts of it they are."""
    law, network = learning_rates(settings, now, surrogate)
    return Schedule.over(
        len(now),
        temperature=temperatures(settings, now),
        adaptation=_first_adaptation(settings),
        law_rate=slower * law,
        surrogate_rate=slower * network,
    )


def sample_schedule(settings: Settings, phase: str, done: np.ndarray) -> Schedule:
    """Of iterations under a frozen law, of which so many are over: step sizes follow the acceptance ever slower while
    tuning, and not at all while sampling."""
    slowing = 2 / (1 + done / 25) if phase == "tune" else 0.0
    return Schedule.over(len(done), adaptation=_first_adaptation(settings) * slowing)


def leaps_in_turn(draws: int, leaps: int, every: int) -> Int[Array, " draw"]:
    """Which of so many leaps comes before each kept draw: one after the other, before one in `every`; -1 is none."""
    draw = np.arange(draws)
    return jnp.asarray(np.where(draw % every, -1, draw // every % max(1, leaps)))


def _first_adaptation(settings: Settings) -> float:
    """How fast step sizes follow the acceptance; one that is given stays."""
    return 0.1 if settings.step_size is None else 0.0
