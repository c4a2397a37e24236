"""Named parameters. The physics sees physical values; the sampler moves on an unconstrained line.

| kind       | physical        | unconstrained theta    |
|------------|-----------------|------------------------|
| `Real`     | any number      | p                      |
| `Positive` | p > 0           | log p                  |
| `Interval` | lower < p < upper | log((p - lower)/(upper - p)) |

Each parameter says what is believed of its population before data. Of its mean either a `prior` on the physical scale, or a
guess on the unconstrained one, mu ~ N(theta(guess), width^2); of the variance between systems, tau, on the unconstrained
scale, log tau ~ N(2 log spread, spread_width^2).
"""

import dataclasses
import difflib
import keyword
import math
import unicodedata
from collections import namedtuple
from collections.abc import Callable, Mapping
from typing import ClassVar, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._known_inputs import Column, KnownInputs, Signal, System, Theta
from ._priors import CHOICES, LogNormal, Normal, Prior

ONE_SD = np.array([0.15865525393145707, 0.8413447460685429])  # of a normal, below one standard deviation either side
FIRST_SPREAD = 1.0  # standard deviation of the first log variances at most
Value = Array | np.ndarray | float
Physical = tuple[Array | float | Callable[..., Array], ...]  # what a physics calls p, a named tuple


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parameter:
    """What every kind of parameter states about its population.

    - `prior`: of a typical value, physical scale, e.g. `LogNormal(0.0, 1.0)`; without hierarchy, of every system's value.
    - `guess` instead: a typical value, physical scale; `width`: how unsure it is, one standard deviation on the
      unconstrained scale (1 by default).
    - `spread`: typical standard deviation between systems, unconstrained scale (0.5 by default; of a `Real` half the width).
    - `spread_width`: how unsure log(spread^2) is, one standard deviation (3 by default: spreads a factor of 4.5 smaller or
      larger are as believable).
    - `shared`: one value for all systems, which `prior`, or guess and width, are of.
    """

    guess: float = float("nan")
    width: float = float("nan")
    spread: float = float("nan")
    spread_width: float = 3.0
    prior: Prior | None = None
    shared: bool = False
    silent: bool = dataclasses.field(init=False, default=False, repr=False)  # nothing is stated but its kind
    near: float = dataclasses.field(init=False, default=1.0, repr=False)  # the part of the width in which chains begin
    _prefix: ClassVar[str] = ""  # of its name on the unconstrained scale

    def __post_init__(self) -> None:
        kind = type(self).__name__
        if np.ndim(self.guess) or isinstance(self.guess, Prior | str):
            raise TypeError(f"{kind}: guess={self.guess!r} must be a number; what is believed of it goes to prior=")
        object.__setattr__(self, "silent", self.prior is None and bool(np.isnan(self.guess) and np.isnan(self.width)))
        if self.prior is not None:
            self._take_prior(self.prior)
        self._fill(guess=self._typical, width=1.0)
        self._fill(spread=0.5 * self.width if isinstance(self, Real) else 0.5)
        for name in ("width", "spread", "spread_width"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{kind}: {name}={getattr(self, name)} must be positive")
        low, high = self._ends
        if not low < self.guess < high:
            positive = (low, high) == (0.0, math.inf)
            what = "be positive; use Real for values of any sign" if positive else f"lie between {low} and {high}"
            raise ValueError(f"{kind}: guess={self.guess} must {what}")

    def _fill(self, **defaults: float) -> None:
        """Set what is not stated."""
        for name, value in defaults.items():
            if np.isnan(getattr(self, name)):
                object.__setattr__(self, name, value)

    def _take_prior(self, prior: Prior) -> None:
        """A guess is its median; a width, on the unconstrained scale, what a normal has a standard deviation either side."""
        kind = type(self).__name__
        if not np.isnan(self.guess) or not np.isnan(self.width):
            raise ValueError(f"{kind}: give a prior, or guess and width, not both")
        if not isinstance(prior, Prior):
            raise TypeError(f"{kind}: prior={prior!r} is none; {CHOICES}")
        low, high = prior.support
        if (low, high) != self._ends:
            within = "all numbers" if self._ends == (-math.inf, math.inf) else f"{self._ends[0]:g} to {self._ends[1]:g}"
            raise ValueError(
                f"{kind} has values in {within}, but {prior} has them in {low:g} to {high:g}; {_kind_for(low, high)}"
            )
        below, above = (float(self.unconstrain(x)) for x in prior.quantile(ONE_SD))
        self._fill(guess=float(prior.quantile(0.5)), width=0.5 * (above - below))

    @property
    def _ends(self) -> tuple[float, float]:
        return -math.inf, math.inf

    @property
    def _typical(self) -> float:
        return 0.0

    @property
    def log_density(self) -> Callable[[Array], Array] | None:
        """Of the prior, on the unconstrained scale; None where that is the normal of guess and width."""
        prior = self.prior
        if prior is None or isinstance(prior, Normal | LogNormal):
            return None

        def density(theta: Array) -> Array:
            value, derivative = jax.jvp(self.constrain, (theta,), (jnp.ones_like(theta),))
            return prior.log_density(value) + jnp.log(derivative)

        return density

    def constrain(self, theta: Value) -> Value:
        raise TypeError("use Real, Positive or Interval")

    def unconstrain(self, value: Value) -> Value:
        raise TypeError("use Real, Positive or Interval")

    def label(self, name: str) -> str:
        return f"{self._prefix}{name}"


@dataclasses.dataclass(frozen=True)
class Real(Parameter):
    """`Real(guess, ...)`: any real number."""

    guess: float = float("nan")

    def constrain(self, theta: Value) -> Value:
        return theta

    def unconstrain(self, value: Value) -> Value:
        return value


@dataclasses.dataclass(frozen=True)
class Positive(Parameter):
    """`Positive(guess, ...)`: a positive number, sampled as its logarithm."""

    guess: float = float("nan")
    _prefix: ClassVar[str] = "log "

    @property
    def _ends(self) -> tuple[float, float]:
        return 0.0, math.inf

    @property
    def _typical(self) -> float:
        return 1.0

    def constrain(self, theta: Value) -> Value:
        return jnp.exp(theta)

    def unconstrain(self, value: Value) -> Value:
        return _log(value)


@dataclasses.dataclass(frozen=True)
class Interval(Parameter):
    """`Interval(lower, upper, ...)`: a number strictly between, sampled as its log odds."""

    lower: float = 0.0
    upper: float = 1.0
    _prefix: ClassVar[str] = "logit "

    def __post_init__(self) -> None:
        if not -math.inf < self.lower < self.upper < math.inf:
            raise ValueError(f"Interval: lower={self.lower} must be below upper={self.upper}, and both finite")
        super().__post_init__()

    @property
    def _ends(self) -> tuple[float, float]:
        return self.lower, self.upper

    @property
    def _typical(self) -> float:
        return 0.5 * (self.lower + self.upper)

    def constrain(self, theta: Value) -> Value:
        value = self.lower + (self.upper - self.lower) * jax.nn.sigmoid(theta)
        return jnp.clip(value, self.lower, self.upper)  # the sum may round past its end

    def unconstrain(self, value: Value) -> Value:
        return _log(value - self.lower) - _log(self.upper - value)


def of_prior(prior: Prior) -> Parameter:
    """The kind of parameter that has the values of a prior."""
    low, high = prior.support
    if (low, high) == (-math.inf, math.inf):
        return Real(prior=prior)
    if (low, high) == (0.0, math.inf):
        return Positive(prior=prior)
    if high < math.inf:
        return Interval(low, high, prior=prior)
    raise ValueError(f"{prior}: a parameter is bounded on both sides, positive, or free; give it an upper bound too")


def _kind_for(low: float, high: float) -> str:
    if (low, high) == (-math.inf, math.inf):
        return "use Real, or a prior that stays inside, like TruncatedNormal"
    return "use Positive" if (low, high) == (0.0, math.inf) else f"use Interval({low:g}, {high:g})"


class Parameters:
    """The parameters of one system, in order; turns theta (P,) into a record `p` with one field a name.

    Those stated as plain numbers are `fixed`: in the record, not in theta. The `known_inputs` of each system are in the record
    too.
    """

    def __init__(self, stated: "Stated"):
        self.stated = dict(stated)
        self.fixed = {n: float(kind) for n, kind in stated.items() if isinstance(kind, int | float | np.number)}
        self.known_inputs = KnownInputs(stated)
        self.notes: tuple[str, ...] = ()
        known = {*self.fixed, *self.known_inputs.columns, *self.known_inputs.signals}
        free = {name: kind for name, kind in stated.items() if name not in known}
        if not free:
            raise ValueError("a problem needs at least one parameter to infer, e.g. parameters={'k': cl.Positive()}")
        self.kinds: dict[str, Parameter] = {n: of_prior(k) if isinstance(k, Prior) else k for n, k in free.items()}  # type: ignore[misc]
        for name in stated:
            check_name(name, "parameter")
        for name, kind in self.kinds.items():
            if not isinstance(kind, Parameter):
                raise TypeError(
                    f"parameter {name!r} is {kind!r}; use cl.Real(), cl.Positive(), cl.Interval(a, b), a prior like "
                    "cl.LogNormal(0.0, 1.0), a number that is known, or cl.Column() and cl.Signal() for what the data tell"
                )
        self.record = _named(tuple(stated))

    def __len__(self) -> int:
        return len(self.kinds)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.kinds)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(kind.label(name) for name, kind in self.kinds.items())

    def constrain(self, theta: Theta, system: System) -> Physical:
        """Physical values by name, for the physics of one system, `system` being its row in the data."""
        free = {name: kind.constrain(theta[i]) for i, (name, kind) in enumerate(self.kinds.items())}
        known = self.known_inputs
        return self.record(**free, **self.fixed, **known.numbers_of(system), **known.signals_of(system))

    def features(self, theta: Theta, system: System) -> Float[Array, " feature"]:
        """What tells one system from another: its parameters, and the numbers known of it."""
        known = self.known_inputs.numbers_of(system)
        return jnp.stack([*theta, *known.values()]) if known else theta

    def to_physical(self, theta: Array | np.ndarray) -> Array:
        """Physical values of an array whose last axis is the parameter."""
        return jnp.stack([kind.constrain(theta[..., i]) for i, kind in enumerate(self.kinds.values())], -1)

    def to_theta(self, physical: Array | np.ndarray) -> Array:
        """Inverse of `to_physical`."""
        return jnp.stack([kind.unconstrain(physical[..., i]) for i, kind in enumerate(self.kinds.values())], -1)

    def _column(self, name: str) -> np.ndarray:
        return np.array([getattr(kind, name) for kind in self.kinds.values()], float)

    @property
    def shared(self) -> tuple[bool, ...]:
        """Which are the same in all systems."""
        return tuple(kind.shared for kind in self.kinds.values())

    @property
    def mean(self) -> np.ndarray:
        """m_mu: prior mean of the population mean, unconstrained."""
        return np.array([float(kind.unconstrain(kind.guess)) for kind in self.kinds.values()])

    @property
    def mean_variance(self) -> np.ndarray:
        """s_mu: prior variance of the population mean."""
        return self._column("width") ** 2

    @property
    def system_variance(self) -> np.ndarray:
        """Of a system on its own, unconstrained: that of its prior; of a guess, with a typical spread between systems."""
        stated = np.array([kind.prior is not None for kind in self.kinds.values()])
        return self.mean_variance + np.where(stated, 0.0, np.exp(self.log_variance))

    @property
    def log_densities(self) -> tuple[Callable[[Array], Array] | None, ...]:
        """Of priors that are not normal on the unconstrained scale."""
        return tuple(kind.log_density for kind in self.kinds.values())

    @property
    def log_variance(self) -> np.ndarray:
        """m_tau: prior mean of log tau."""
        return 2 * np.log(self._column("spread"))

    @property
    def logs(self) -> tuple[bool, ...]:
        """Which parameters are logarithms on the unconstrained scale."""
        return tuple(isinstance(kind, Positive) for kind in self.kinds.values())

    @property
    def first_scales(self) -> Float[np.ndarray, "2 parameter"]:
        """How far from typical ones, in standard deviations of the hyperprior, the first means and log variances are drawn: wide
        priors do not decide, and solutions out there may not exist."""
        return np.stack([self._column("near"), np.minimum(1.0, FIRST_SPREAD / self._column("spread_width"))])

    @property
    def log_variance_variance(self) -> np.ndarray:
        """s_tau: prior variance of log tau."""
        return self._column("spread_width") ** 2


Stated = Mapping[str, Parameter | Prior | float | Column | Signal]


def _log(value: Value) -> Value:
    """By NumPy where that will do: what a problem states must not start JAX."""
    return jnp.log(value) if isinstance(value, jax.Array) else np.log(value)


def check_name(name: str, what: str) -> None:
    """A name that can be written after a dot."""
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
        raise ValueError(
            f"{what} name {name!r} must be a Python identifier without a leading underscore, like 'k' or 'u0'"
        )
    if (read := unicodedata.normalize("NFKC", name)) != name:
        raise ValueError(
            f"{what} name {name!r} has a letter that Python takes for another: it reads {read!r} (other codes, maybe the same "
            f"look). Write names in letters of the keyboard, like 'mu'"
        )


def _named(names: tuple[str, ...]) -> Callable[..., Physical]:
    """The type of p."""
    kind = namedtuple("p", names)  # type: ignore[misc]

    def missing(_: object, name: str) -> NoReturn:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean p.{near[0]}?" if near else f"there are {', '.join(names) or 'none'}"
        raise AttributeError(f"there is no parameter {name!r}; {hint}")

    kind.__getattr__ = missing  # type: ignore[attr-defined]
    return kind
