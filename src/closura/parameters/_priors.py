"""What is believed of a number before data, on the physical scale: the usual families."""

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array

CHOICES = "use Normal, LogNormal, TruncatedNormal, HalfNormal, Gamma or Uniform"
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


@dataclasses.dataclass(frozen=True)
class Prior:
    """A distribution of one number. Its first fields are its parameters, as in statistics books."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int | float | np.number) or np.isnan(value):
                raise ValueError(f"{self}: {field.name} must be a number")
            if field.name in ("sd", "log_sd", "shape", "rate") and not 0 < value < math.inf:
                raise ValueError(f"{self}: {field.name} must be positive")

    @property
    def support(self) -> tuple[float, float]:
        """Between which values it can lie."""
        return -math.inf, math.inf

    def log_density(self, value: Array) -> Array:
        """At a value inside the support."""
        raise TypeError(CHOICES)

    def quantile(self, share: ArrayLike) -> np.ndarray:
        """Below which value so large a share lies."""
        return np.asarray(self._frozen().ppf(share))

    def _frozen(self) -> Any:
        """The same distribution of SciPy."""
        from scipy import stats

        family, arguments = self._scipy
        return getattr(stats, family)(*arguments)

    @property
    def _scipy(self) -> tuple[str, tuple[float, ...]]:
        """Its name and arguments in `scipy.stats`."""
        raise TypeError(CHOICES)


class _PositivePrior(Prior):
    @property
    def support(self) -> tuple[float, float]:
        return 0.0, math.inf


@dataclasses.dataclass(frozen=True)
class Normal(Prior):
    """Any number, about `mean`."""

    mean: float
    sd: float

    def log_density(self, value: Array) -> Array:
        return -0.5 * ((value - self.mean) / self.sd) ** 2 - math.log(self.sd) - _HALF_LOG_2PI

    @property
    def _scipy(self) -> tuple[str, tuple[float, ...]]:
        return "norm", (self.mean, self.sd)


@dataclasses.dataclass(frozen=True)
class LogNormal(_PositivePrior):
    """A positive number whose logarithm is normal; exp(log_mean) is its median."""

    log_mean: float
    log_sd: float

    def log_density(self, value: Array) -> Array:
        log = jnp.log(value)
        return -0.5 * ((log - self.log_mean) / self.log_sd) ** 2 - log - math.log(self.log_sd) - _HALF_LOG_2PI

    @property
    def _scipy(self) -> tuple[str, tuple[float, ...]]:
        return "lognorm", (self.log_sd, 0.0, math.exp(self.log_mean))


@dataclasses.dataclass(frozen=True)
class TruncatedNormal(Prior):
    """A normal number that is known to lie between `low` and `high`."""

    mean: float
    sd: float
    low: float = 0.0
    high: float = math.inf

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.low < self.high:
            raise ValueError(f"{self}: low must be below high")
        if not self._share() > 1e-12:
            raise ValueError(f"{self}: hardly anything of that normal lies between {self.low} and {self.high}")

    @property
    def support(self) -> tuple[float, float]:
        return self.low, self.high

    def _share(self) -> float:
        """How much of the whole normal lies inside."""
        low, high = ((end - self.mean) / self.sd / math.sqrt(2) for end in (self.low, self.high))
        # From the nearer tail, where differences are exact.
        return 0.5 * (math.erfc(low) - math.erfc(high) if low > 0 else math.erfc(-high) - math.erfc(-low))

    def log_density(self, value: Array) -> Array:
        return Normal(self.mean, self.sd).log_density(value) - math.log(self._share())

    @property
    def _scipy(self) -> tuple[str, tuple[float, ...]]:
        low, high = ((end - self.mean) / self.sd for end in (self.low, self.high))
        return "truncnorm", (low, high, self.mean, self.sd)


@dataclasses.dataclass(frozen=True)
class HalfNormal(_PositivePrior):
    """A positive number, most likely small: the size of a normal one about zero."""

    sd: float

    def log_density(self, value: Array) -> Array:
        return Normal(0.0, self.sd).log_density(value) + math.log(2)

    @property
    def _scipy(self) -> tuple[str, tuple[float, ...]]:
        return "halfnorm", (0.0, self.sd)


@dataclasses.dataclass(frozen=True)
class Gamma(_PositivePrior):
    """A positive number of mean shape / rate."""

    shape: float
    rate: float

    def log_density(self, value: Array) -> Array:
        constant = self.shape * math.log(self.rate) - math.lgamma(self.shape)
        return constant + (self.shape - 1) * jnp.log(value) - self.rate * value

    @property
    def _scipy(self) -> tuple[str, tuple[float, ...]]:
        return "gamma", (self.shape, 0.0, 1 / self.rate)


@dataclasses.dataclass(frozen=True)
class Uniform(Prior):
    """Any number between `low` and `high`, none likelier than another."""

    low: float
    high: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not -math.inf < self.low < self.high < math.inf:
            raise ValueError(f"{self}: low must be below high, and both finite")

    @property
    def support(self) -> tuple[float, float]:
        return self.low, self.high

    def log_density(self, value: Array) -> Array:
        return jnp.full_like(value, -math.log(self.high - self.low))

    @property
    def _scipy(self) -> tuple[str, tuple[float, ...]]:
        return "uniform", (self.low, self.high - self.low)
