"""What an evolution equation bears: the largest step that is stable, and whether a circle joins its ends."""

import dataclasses
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ...laws import SolverLaws
from ...parameters import Parameters, System, Theta
from .._initial_value import Axes
from .._integrators import State, Time
from .._shared import ProblemError
from ._evolution import Evolution
from ._grid import Line
from ._schemes import Dirichlet


def line_rates(
    problem: Evolution, laws: SolverLaws, theta: Float[Array, "draw parameter"], system: Int[Array, " draw"]
) -> np.ndarray:
    """(draw, mode): how fast modes about the initial state grow, from all of the linearised equation."""
    size = len(problem.state_names) * problem.grid.size

    def linearised(theta: Theta, system: System) -> Float[Array, "..."]:
        """How the rates change with the fields, at the start: (field, *node, field, *node)."""
        rhs, begin = problem.rate(theta, laws, system), jnp.asarray(problem.span[0], float)
        return jax.jacfwd(lambda y: jnp.stack(rhs(begin, tuple(y))))(jnp.stack(problem.start(theta, system)))

    matrices = _finite(linearised, theta, system)
    return np.stack([np.linalg.eigvals(matrix.reshape(size, size)) for matrix in matrices])


def _finite(function: Callable[[Array, Array], Array], theta: Array, system: Array) -> np.ndarray:
    """A function of one draw, of all of them."""
    found = np.asarray(jax.jit(jax.vmap(function))(theta, system), float)
    if not np.isfinite(found).all():
        raise ProblemError(
            "the equation is not finite at the initial state; look for a division by zero or a root of a negative number in physics "
            "and initial, at the parameters' guesses and two standard deviations to either side (a parameter that must be positive "
            "is a cl.Positive)"
        )
    return found


def largest_stable_step(rates: np.ndarray) -> float:
    """The largest step at which RK4 damps what the equation damps, for linear modes exp(rate t).

    Its limit is 2.78 for a rate on the negative real axis and 2.83 on the imaginary one. Modes that grow by themselves may.
    """
    radius = np.abs(rates).max()
    if radius == 0:
        return math.inf
    steps = np.geomspace(1e-2, 1e3, 4000) / radius
    z = steps[:, None] * rates
    factor = np.abs(1 + z * (1 + z / 2 * (1 + z / 3 * (1 + z / 4))))
    unstable = np.any(factor > 1.001 * np.exp(np.clip(z.real, 0.0, 50.0)), axis=1)
    return float(steps[max(np.argmax(unstable) - 1, 0)]) if unstable.any() else math.inf


def frozen_rates(
    problem: Evolution, laws: SolverLaws, theta: Float[Array, "draw parameter"], system: Int[Array, " draw"]
) -> list[np.ndarray]:
    """Of each draw how fast modes about the initial state grow, at each place as if its coefficients were everywhere.

    All of a linearised equation in the plane has too many modes. Of what each place has, the extremes of every coefficient
    are looked at, and some places more; of the waves along each axis, the extremes of every derivative, and some more.
    """
    waves = _crossed([_some_waves(line) for line in problem.grid.lines])
    found = []
    for part in _finite(lambda theta, system: _coefficients(problem, laws, theta, system), theta, system):
        flat = part.reshape(len(part), -1)
        some = np.unique([*flat.argmin(axis=0), *flat.argmax(axis=0), *np.linspace(0, len(flat) - 1, 50).astype(int)])
        rates = np.linalg.eigvals(np.einsum("scij,wc->swij", part[some], waves)).ravel()
        # Of rates in about the same direction the largest decides.
        order = np.lexsort((-np.abs(rates), np.round(np.angle(rates), 2)))
        found.append(rates[order[np.unique(np.round(np.angle(rates), 2)[order], return_index=True)[1]]])
    return found


def _coefficients(
    problem: Evolution, laws: SolverLaws, theta: Array, system: System
) -> Float[Array, "site derivative field field"]:
    """How the equation at each site changes with u, with its first derivatives along each axis, and with the second ones."""
    local, start = problem.local(theta, laws, system), problem.start(theta, system)
    axes = range(len(problem.grid.lines))

    def coefficients(u: State, ux: Axes, uxx: Axes, x: State, t: Time) -> Float[Array, "derivative field field"]:
        def rates(u: State, ux: Axes, uxx: Axes) -> Array:
            return jnp.stack(local(u, ux, uxx, x, t))

        by_u, by_ux, by_uxx = jax.jacfwd(rates, argnums=(0, 1, 2))(u, ux, uxx)
        return jnp.stack([jnp.stack(part, axis=-1) for part in (by_u, *by_ux, *by_uxx)])

    begin = jnp.asarray(problem.span[0], float)
    found = problem.at_sites(theta, laws, system)(begin, start, coefficients)
    found = found.reshape(-1, *found.shape[len(axes) :])
    if problem.speed is None:
        return found
    # A first derivative is one of two, by where waves come from.
    ahead = jnp.stack([jnp.stack(axis, axis=-1) for axis in problem.speeds(theta, laws, system)(start)]) > 0
    ahead = jnp.moveaxis(ahead.reshape(len(axes), -1, found.shape[-1]), 0, 1)[:, :, None]
    first = found[:, 1 : 1 + len(axes)]
    both = jnp.stack([first * ahead, first * ~ahead], axis=2).reshape(len(found), -1, *found.shape[2:])
    return jnp.concatenate([found[:, :1], both, found[:, 1 + len(axes) :]], axis=1)


def _some_waves(line: Line) -> np.ndarray:
    """(derivative, wave): what derivatives along a line make of its waves, those to which they do most among them.

    Where the line has ends, those of a circle, enlarged by as much as the ends enlarge the largest of them.
    """
    circle = dataclasses.replace(line, ends=(None, None)).differences
    rows = (circle.matrices if circle.back is None else circle.back @ circle.matrices)[:, 0]
    waves = np.fft.ifft(rows, axis=1) * line.cells
    if not line.periodic:
        kept = slice(isinstance(line.ends[0], Dirichlet), len(line.nodes) - isinstance(line.ends[1], Dirichlet))
        largest = np.abs(np.linalg.eigvals(line.differences.matrices[:, kept, kept])).max(axis=1)
        waves *= np.maximum(1.0, largest / np.abs(waves).max(axis=1))[:, None]
    half = line.cells // 2 + 1
    most = np.abs(waves[:, :half]).argmax(axis=1)
    some = np.unique([*most, *np.linspace(0, half - 1, 7).astype(int)])
    return waves[:, np.unique([*some, *(-some % line.cells)])]


def _crossed(waves: list[np.ndarray]) -> np.ndarray:
    """(wave, derivative): all pairs of waves along x and y; of each 1, the first derivatives, and the second ones."""
    x, y = (part.reshape(len(part), -1) for part in waves)
    x, y = np.repeat(x, y.shape[1], axis=1), np.tile(y, x.shape[1])
    return np.stack([np.ones(x.shape[1]), *x[:-1], *y[:-1], x[-1], y[-1]], axis=-1)


def prior_corners(parameters: Parameters) -> tuple[Float[Array, "corner parameter"], Int[Array, " corner"]]:
    """The guess, and two standard deviations to both sides of it for every parameter; for every system, and which."""
    mean, sd = parameters.mean, np.sqrt(parameters.mean_variance + np.exp(parameters.log_variance))
    places = np.concatenate([mean[None], mean + np.diag(2 * sd), mean - np.diag(2 * sd)])
    systems = parameters.known_inputs.systems
    return jnp.asarray(np.repeat(places, systems, axis=0), float), jnp.tile(jnp.arange(systems), len(places))


def check_circle(problem: Evolution) -> None:
    """On a circle the last place is the first: does the initial state know?"""
    theta = jnp.asarray(problem.parameters.mean, float)
    fields = np.asarray(jnp.stack(problem.start(theta, 0)), float)
    apart = 0.1 * np.ptp(fields.reshape(len(fields), -1), axis=1)
    begin = problem.conditions(theta, 0).begin
    for axis, line in enumerate(problem.grid.lines):
        if not line.periodic:
            continue
        low, high = (np.asarray(problem.grid.at_end(begin, axis, side)).reshape(len(fields), -1) for side in (0, 1))
        off = np.argmax(np.abs(high - low)[0])
        if np.any(np.abs(high - low) > apart[:, None]):
            raise ProblemError(
                f"boundary='periodic' joins {line.name}={line.domain[0]:g} and {line.name}={line.domain[1]:g}, but the initial "
                f"state is {low[0, off]:.4g} at one and {high[0, off]:.4g} at the other; give boundary='dirichlet', 'neumann', "
                "or a pair (low, high) of cl.Dirichlet and cl.Neumann"
            )
