"""Named parameters. The physics sees physical values; the sampler moves on an unconstrained line.

| kind       | physical        | unconstrained theta    |
|------------|-----------------|------------------------|
| `Real`     | any number      | p                      |
| `Positive` | p > 0           | log p                  |
| `Interval` | lower < p < upper | log((p - lower)/(upper - p)) |

Each parameter says what is believed of its population before data, on the unconstrained scale:
mu ~ N(theta(guess), width^2) and log tau ~ N(2 log spread, spread_width^2), tau being the variance between systems.
"""

import dataclasses
import keyword
from collections import namedtuple
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parameter:
    """What every kind of parameter states about its population.

    - `guess`: a typical value, physical scale.
    - `width`: how unsure the guess is, one standard deviation on the unconstrained scale.
    - `spread`: typical standard deviation between systems, unconstrained scale.
    - `spread_width`: how unsure log(spread^2) is, one standard deviation.
    """

    guess: float = 0.0
    width: float = 1.0
    spread: float = 0.5
    spread_width: float = 1.0

    def __post_init__(self) -> None:
        for name in ("width", "spread", "spread_width"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{type(self).__name__}: {name}={getattr(self, name)} must be positive")

    def constrain(self, theta: Any) -> Any:
        raise TypeError("use Real, Positive or Interval")

    def unconstrain(self, value: Any) -> Any:
        raise TypeError("use Real, Positive or Interval")

    def label(self, name: str) -> str:
        return name


@dataclasses.dataclass(frozen=True, kw_only=True)
class Real(Parameter):
    """Any real number."""

    def constrain(self, theta: Any) -> Any:
        return theta

    def unconstrain(self, value: Any) -> Any:
        return value


@dataclasses.dataclass(frozen=True, kw_only=True)
class Positive(Parameter):
    """A positive number, sampled as its logarithm."""

    guess: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.guess > 0:
            raise ValueError(f"Positive: guess={self.guess} must be positive; use Real for values of any sign")

    def constrain(self, theta: Any) -> Any:
        return jnp.exp(theta)

    def unconstrain(self, value: Any) -> Any:
        return jnp.log(value)

    def label(self, name: str) -> str:
        return f"log {name}"


@dataclasses.dataclass(frozen=True)
class Interval(Parameter):
    """A number strictly between `lower` and `upper`, sampled as its log odds."""

    lower: float = 0.0
    upper: float = 1.0
    guess: float = dataclasses.field(default=float("nan"), kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.lower < self.upper:
            raise ValueError(f"Interval: lower={self.lower} must be below upper={self.upper}")
        if np.isnan(self.guess):
            object.__setattr__(self, "guess", 0.5 * (self.lower + self.upper))
        if not self.lower < self.guess < self.upper:
            raise ValueError(f"Interval: guess={self.guess} must lie between {self.lower} and {self.upper}")

    def constrain(self, theta: Any) -> Any:
        value = self.lower + (self.upper - self.lower) * jax.nn.sigmoid(theta)
        return jnp.clip(value, self.lower, self.upper)  # the sum may round past its end

    def unconstrain(self, value: Any) -> Any:
        return jnp.log(value - self.lower) - jnp.log(self.upper - value)

    def label(self, name: str) -> str:
        return f"logit {name}"


class Parameters:
    """The parameters of one system, in order; turns theta (P,) into a record `p` with one field a name."""

    def __init__(self, kinds: Mapping[str, Parameter]):
        if not kinds:
            raise ValueError("a problem needs at least one parameter, e.g. parameters={'k': cl.Positive()}")
        for name, kind in kinds.items():
            check_name(name, "parameter")
            if not isinstance(kind, Parameter):
                raise TypeError(f"parameter {name!r} is {kind!r}; use cl.Real(), cl.Positive() or cl.Interval(a, b)")
        self.kinds = dict(kinds)
        self.record = namedtuple("p", list(kinds))  # type: ignore[misc]

    def __len__(self) -> int:
        return len(self.kinds)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.kinds)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(kind.label(name) for name, kind in self.kinds.items())

    def constrain(self, theta: Float[Array, " parameter"]) -> Any:
        """Physical values by name, for the physics of one system."""
        return self.record(*(kind.constrain(theta[i]) for i, kind in enumerate(self.kinds.values())))

    def to_physical(self, theta: Any) -> Any:
        """Physical values of an array whose last axis is the parameter."""
        return jnp.stack([kind.constrain(theta[..., i]) for i, kind in enumerate(self.kinds.values())], -1)

    def to_theta(self, physical: Any) -> Any:
        """Inverse of `to_physical`."""
        return jnp.stack([kind.unconstrain(physical[..., i]) for i, kind in enumerate(self.kinds.values())], -1)

    def _column(self, name: str) -> np.ndarray:
        return np.array([getattr(kind, name) for kind in self.kinds.values()], float)

    @property
    def mean(self) -> np.ndarray:
        """m_mu: prior mean of the population mean, unconstrained."""
        return np.array([float(kind.unconstrain(kind.guess)) for kind in self.kinds.values()])

    @property
    def mean_variance(self) -> np.ndarray:
        """s_mu: prior variance of the population mean."""
        return self._column("width") ** 2

    @property
    def log_variance(self) -> np.ndarray:
        """m_tau: prior mean of log tau."""
        return 2 * np.log(self._column("spread"))

    @property
    def log_variance_variance(self) -> np.ndarray:
        """s_tau: prior variance of log tau."""
        return self._column("spread_width") ** 2


def check_name(name: str, what: str) -> None:
    """A name that can be written after a dot."""
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
        raise ValueError(
            f"{what} name {name!r} must be a Python identifier without a leading underscore, like 'k' or 'u0'"
        )
