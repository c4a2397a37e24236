"""What every kind of problem checks when it is made: its laws, and what the user's functions return."""

import inspect
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ..laws import Known, KnownLaw, LawSpec, Range, Scaling, SolverLaw
from ..parameters import LogNormal, Parameters, check_name

Tree = TypeVar("Tree")
Record = dict[str, list[Array]]
Covariates = Mapping[str, Sequence[str] | str] | None
Sigma = float | LogNormal | Mapping[str, float | LogNormal] | None


class ProblemError(ValueError):
    """The problem as written cannot be solved; the message says what to change."""


@runtime_checkable
class NoiseModel(Protocol):
    """What a problem knows of its noise; `closura.forward.noise` has the families, and all that is asked of them."""

    @property
    def name(self) -> str: ...

    @property
    def has_scale(self) -> bool: ...

    def log_prob(self, y: Array, prediction: Array, scale: Array) -> Array: ...

    def sample(self, key: PRNGKeyArray, prediction: Array, scale: Array) -> Array: ...


NOISES: dict[str, NoiseModel] = {}  # by the name a problem may use; filled by closura.forward.noise


def as_noise(noise: str | NoiseModel, sigma: Sigma) -> tuple[NoiseModel, Sigma]:
    """The family of the noise and its size, or a message what they may be."""
    family = NOISES.get(noise) if isinstance(noise, str) else noise
    if isinstance(family, type) or not isinstance(family, NoiseModel):
        raise ProblemError(
            f"noise={noise!r} must be one of {', '.join(map(repr, NOISES))}, or a family of your own, like MyNoise(), derived "
            "from cl.Noise"
        )
    if sigma is not None and not family.has_scale:
        raise ProblemError(
            f"sigma={sigma!r}: {family.name} noise has no scale, its size follows from the prediction; leave sigma out, or "
            "choose another noise"
        )
    for size in sigma.values() if isinstance(sigma, Mapping) else (sigma,):
        number = isinstance(size, int | float | np.number) and 0 < size < np.inf
        if not (size is None or isinstance(size, LogNormal) or number):
            raise ProblemError(
                f"sigma={size!r} must be a positive number, a prior cl.LogNormal(...) to have it inferred, or nothing"
            )
    return family, sigma


def as_covariates(covariates: Covariates, parameters: Parameters) -> dict[str, tuple[str, ...]]:
    """Columns that shift the population mean of each parameter, by its name."""
    found = {name: (at,) if isinstance(at, str) else tuple(at) for name, at in (covariates or {}).items()}
    for name in found:
        if name not in parameters.names:
            raise ProblemError(
                f"covariates are of parameters that are inferred, and {name!r} is none; those are {', '.join(parameters.names)}"
            )
        if parameters.kinds[name].shared:
            raise ProblemError(f"{name!r} is shared: covariates shift parameters that differ; drop one of the two")
    return found


def named_closures(closure: LawSpec | Mapping[str, LawSpec] | None) -> dict[str, LawSpec]:
    """Closures by name; a single one is called f."""
    if closure is None:
        return {}
    closures = dict(closure) if isinstance(closure, Mapping) else {"f": closure}
    for name, spec in closures.items():
        check_name(name, "closure")
        if not isinstance(spec, LawSpec):
            raise ProblemError(f"closure {name!r} is {spec!r}; use cl.MLP(...) or cl.Known(function)")
    return closures


def as_names(names: Sequence[str] | str, what: str) -> tuple[str, ...]:
    """One name or several, each fit to be written after a dot."""
    found = (names,) if isinstance(names, str) else tuple(names)
    for name in found:
        check_name(name, what)
    return found


def bundle(what: str, names: tuple[str, ...]) -> Callable[..., tuple[PyTree[Array], ...]]:
    """A tuple whose parts have names, and that says so where it is taken for a number."""
    kind = namedtuple(what, names)  # type: ignore[misc]
    apart = f"{', '.join(names)} = {what}" if len(names) > 1 else f"{names[0]} = {what}[0]"
    said = f"`{what}` is not a number, it holds {len(names)} ({', '.join(names)}); write `{apart}` first, or {what}.{names[0]}"

    def refuse(*_: object) -> NoReturn:
        raise TypeError(said)

    binary = ("add", "sub", "mul", "truediv", "pow")
    for operation in (*binary, *(f"r{name}" for name in binary), "neg", "abs", "float"):
        setattr(kind, f"__{operation}__", refuse)
    return kind


Place = bundle("x", ("x", "y"))  # in the plane


def as_interval(interval: Any, what: str) -> tuple[float, float]:
    try:
        low, high = (float(end) for end in interval)
    except (TypeError, ValueError):
        raise ProblemError(f"{what}={interval!r} must be two numbers, (start, end)") from None
    if not low < high:
        raise ProblemError(f"{what} {tuple(interval)} must run forward: (start, end) with start < end")
    return low, high


def check_times(span: tuple[float, float], dt: float) -> None:
    """Raise if the precision in use cannot tell one step's time from the next."""
    kind = np.finfo(jnp.result_type(float))
    length, far = span[1] - span[0], max(abs(span[0]), abs(span[1]))
    # Rounding by a thousandth of a step is harmless. A long record that starts near zero may round more: nothing helps.
    apart, least = float(kind.eps) * far, 1000 if far > 2 * length else 10
    if dt < least * apart:
        raise ProblemError(
            f"times near {far:.4g} are {apart:.2g} apart in {kind.dtype}, too coarse for steps of {dt:.4g}; measure "
            f"time from the start of the record, in the data too (span=(0.0, {length:.6g})), take fewer steps, or compute "
            "in double precision (--float64, or jax.config.update('jax_enable_x64', True))"
        )


def takes(function: Callable[..., object], count: int) -> bool:
    """Whether a function can be called with so many arguments."""
    arguments = inspect.signature(function).parameters.values()
    return len(arguments) >= count or any(a.kind is a.VAR_POSITIONAL for a in arguments)


def unit_scaling(inputs: int) -> Scaling:
    return Scaling(jnp.zeros(inputs), jnp.ones(inputs), jnp.ones(()))


def unit_laws(closures: Mapping[str, LawSpec]) -> dict[str, SolverLaw]:
    """Laws as they are before a fit, in units of one."""
    return {name: _unit_law(spec) for name, spec in closures.items()}


def _unit_law(spec: LawSpec) -> SolverLaw:
    with jax.ensure_compile_time_eval():
        scaling, one = unit_scaling(spec.inputs), jnp.ones(spec.inputs)
        return spec.build(jr.key(0), scaling).as_function(spec.frame(Range(-one, one), scaling))


def identity_laws(closures: Mapping[str, LawSpec]) -> dict[str, KnownLaw]:
    """Laws that return their first input."""
    return {name: KnownLaw(Known(_first, spec.inputs)) for name, spec in closures.items()}


def constant_laws(closures: Mapping[str, LawSpec], sizes: Mapping[str, ArrayLike]) -> dict[str, SolverLaw]:
    """Laws of these sizes, whatever their inputs; those without a size as they are."""
    constant = {
        n: Known(lambda *x, c=c: jnp.full(jnp.shape(x[0]), c, dtype=float), closures[n].inputs)
        for n, c in sizes.items()
    }
    return unit_laws({**closures, **constant})


def trace(
    probe: Callable[..., object], parameters: int, numbers: int, what: str, shape: tuple[int, ...] | None = None
) -> None:
    """Trace the user's functions once, probe(theta, *numbers), so that bad shapes fail here and not inside a solver; with a
    `shape` also of an array."""
    # Shapes only: making a problem must not start JAX, the number of devices may still be chosen after it.
    number = jax.ShapeDtypeStruct((), jnp.result_type(float))
    theta = jax.ShapeDtypeStruct((parameters,), number.dtype)
    try:
        arrays = [] if shape is None else [jax.ShapeDtypeStruct(shape, number.dtype)]
        jax.eval_shape(probe, theta, *[number] * numbers, *arrays)
    except ProblemError:
        raise
    except jax.errors.TracerBoolConversionError as error:
        raise ProblemError(
            f"{what} branches on a value with `if`, `and`, `min` or the like; write jnp.where(condition, this, that)"
        ) from error
    except (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError) as error:
        raise ProblemError(
            f"{what} uses a function of NumPy or math; take the one of jax.numpy instead: `import jax.numpy as jnp`, jnp.exp(u)"
        ) from error
    except Exception as error:
        raise ProblemError(f"{what} failed: {type(error).__name__}: {error}") from error


COUNTS = {4: "three arguments; the law is the fourth", 7: "six arguments; the law is the seventh"}


def check_called(record: Record, single: bool, takes_law: bool, signature: str) -> None:
    """Raise if a closure was never called; `signature` is the function as it should be written, like physics(t, ..., f)."""
    idle = [name for name, calls in record.items() if not calls]
    if idle:
        call = "f(...)" if single else f"f.{idle[0]}(...)"
        hint = "" if takes_law else f" (it takes {COUNTS[signature.count(',') + 1]})"
        raise ProblemError(
            f"the {signature.split('(')[0]} never calls the closure {', '.join(map(repr, idle))}{hint}; write {signature} with "
            f"{call} in it, or leave the closure out"
        )


def named_inputs(
    closures: Mapping[str, LawSpec], names: Sequence[str], call: Callable[[Record, Float[Array, " name"]], object]
) -> dict[str, tuple[str, ...]]:
    """What each law is a function of: call(record, numbers), with a number of its own for each name, tells by what it hands
    to the law. What is none of these is called `input`."""
    record: Record = {name: [] for name in closures}
    numbers = jnp.asarray(np.random.default_rng(0).uniform(0.3, 0.7, len(names)), float)
    call(record, numbers)
    known = dict(zip(np.asarray(numbers).tolist(), names))
    found = {}
    for law, calls in record.items():
        seen = [tuple(known.get(value, "") for value in row) for row in np.concatenate(calls).tolist()]
        plain = plain_names(len(seen[0]))
        found[law] = tuple(n if n and all(row[i] == n for row in seen) else plain[i] for i, n in enumerate(seen[0]))
    return found


def plain_names(inputs: int) -> tuple[str, ...]:
    """Of the inputs of a law that have no other."""
    return ("input",) if inputs == 1 else tuple(f"input {i + 1}" for i in range(inputs))


def called_inputs(
    closures: Mapping[str, LawSpec], call: Callable[[Record], object]
) -> dict[str, Float[Array, "call input"]]:
    """Inputs of each law in one evaluation of an equation, which is call(record)."""
    record: Record = {name: [] for name in closures}
    call(record)
    return {
        name: jnp.concatenate(calls) if calls else jnp.zeros((0, closures[name].inputs))
        for name, calls in record.items()
    }


def either(condition: Array, one: Tree, other: Tree) -> Tree:
    """`where` for trees."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), one, other)


def scalars(values: PyTree, what: str, names: tuple[str, ...]) -> tuple[Array, ...]:
    """One scalar a name, or a message that says what came instead."""
    count = len(names)
    wanted = f"{count} number{'s' * (count > 1)} ({', '.join(names)})"
    if values is None:
        raise ProblemError(f"{what} must return {wanted}, it returned nothing; is there a `return`?")
    parts = list(values) if isinstance(values, tuple | list) or jnp.ndim(values) else [values]
    if len(parts) != count:
        raise ProblemError(f"{what} must return {wanted}, it returned {len(parts)}")
    for name, part in zip(names, parts):
        if jnp.shape(part) != ():
            raise ProblemError(f"{what} must return {wanted}; its {name!r} has shape {jnp.shape(part)}")
    return tuple(jnp.asarray(part, float) for part in parts)


def _first(*x: Array) -> Array:
    return x[0]
