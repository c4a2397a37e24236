"""What is believed of a number before data, on the physical scale: the usual families."""

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np

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

    def log_density(self, value: Any) -> Any:
        """At a value inside the support."""
        raise TypeError(CHOICES)

    def quantile(self, share: Any) -> np.ndarray:
        """Below which value so large a share lies."""
        return np.asarray(self._frozen().ppf(share))

    def _frozen(self) -> Any:
        """The same distribution of SciPy."""
        raise TypeError(CHOICES)


@dataclasses.dataclass(frozen=True)
class Normal(Prior):
    """Any number, about `mean`."""

    mean: float
    sd: float

    def log_density(self, value: Any) -> Any:
        return -0.5 * ((value - self.mean) / self.sd) ** 2 - math.log(self.sd) - _HALF_LOG_2PI

    def _frozen(self) -> Any:
        from scipy import stats

        return stats.norm(self.mean, self.sd)


@dataclasses.dataclass(frozen=True)
class LogNormal(Prior):
    """A positive number whose logarithm is normal; exp(log_mean) is its median."""

    log_mean: float
    log_sd: float

    @property
    def support(self) -> tuple[float, float]:
        return 0.0, math.inf

    def log_density(self, value: Any) -> Any:
        log = jnp.log(value)
        return -0.5 * ((log - self.log_mean) / self.log_sd) ** 2 - log - math.log(self.log_sd) - _HALF_LOG_2PI

    def _frozen(self) -> Any:
        from scipy import stats

        return stats.lognorm(self.log_sd, scale=math.exp(self.log_mean))


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

    def log_density(self, value: Any) -> Any:
        return Normal(self.mean, self.sd).log_density(value) - math.log(self._share())

    def _frozen(self) -> Any:
        from scipy import stats

        low, high = ((end - self.mean) / self.sd for end in (self.low, self.high))
        return stats.truncnorm(low, high, self.mean, self.sd)


@dataclasses.dataclass(frozen=True)
class HalfNormal(Prior):
    """A positive number, most likely small: the size of a normal one about zero."""

    sd: float

    @property
    def support(self) -> tuple[float, float]:
        return 0.0, math.inf

    def log_density(self, value: Any) -> Any:
        return Normal(0.0, self.sd).log_density(value) + math.log(2)

    def _frozen(self) -> Any:
        from scipy import stats

        return stats.halfnorm(0.0, self.sd)


@dataclasses.dataclass(frozen=True)
class Gamma(Prior):
    """A positive number of mean shape / rate."""

    shape: float
    rate: float

    @property
    def support(self) -> tuple[float, float]:
        return 0.0, math.inf

    def log_density(self, value: Any) -> Any:
        constant = self.shape * math.log(self.rate) - math.lgamma(self.shape)
        return constant + (self.shape - 1) * jnp.log(value) - self.rate * value

    def _frozen(self) -> Any:
        from scipy import stats

        return stats.gamma(self.shape, scale=1 / self.rate)


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

    def log_density(self, value: Any) -> Any:
        return jnp.full_like(value, -math.log(self.high - self.low))

    def _frozen(self) -> Any:
        from scipy import stats

        return stats.uniform(self.low, self.high - self.low)
