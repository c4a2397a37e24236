"""Time integrators. Fixed-step ones are (start, step) pairs scanned over the grid; diffrax does the adaptive ones.

State is a tuple of numbers, or of fields on a grid; `rhs(t, y)` is the physics of one system. (A tuple, not a vector: in
a batch each component is then one contiguous array over chains and systems, which the compiler turns into straight loops.)
"""

import dataclasses
from collections.abc import Callable
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, PyTree

from ._shared import either

State = tuple[Float[Array, "..."], ...]
Time = Float[Array, ""] | float
Rhs = Callable[[Time, State], State]
Carry = tuple[State, State]  # the state, and what a scheme keeps beside it
Flagged = tuple[State, Float[Array, "..."]]


def _move(y: State, *steps: tuple[float, State]) -> State:
    """y + sum of factor x direction."""
    for factor, direction in steps:
        y = tuple(yi + factor * di for yi, di in zip(y, direction))
    return y


class Integrator:
    """`start` makes the carry of a scan over steps, and `step` moves it on. An `adaptive` one has no steps of its own: it
    can `solve`.

    `second_order`: the second half of the state are taken for the time derivatives of the first.
    """

    adaptive: ClassVar[bool] = False
    second_order: ClassVar[bool] = False

    def start(self, rhs: Rhs, t: Time, y: State) -> Carry:
        return y, ()

    def step(self, rhs: Rhs, t: Time, dt: float, carry: Carry) -> Carry:
        raise NotImplementedError

    def solve(
        self, rhs: Rhs, start: State, span: tuple[Time, Time], times: Float[Array, " time"], backward: bool
    ) -> State:
        """States at times; `backward`: derivatives are wanted in reverse mode."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class RK4(Integrator):
    """Classical Runge-Kutta, fourth order: four evaluations a step. The default."""

    def step(self, rhs: Rhs, t: Time, dt: float, carry: Carry) -> Carry:
        y, beside = carry
        k1 = rhs(t, y)
        k2 = rhs(t + 0.5 * dt, _move(y, (0.5 * dt, k1)))
        k3 = rhs(t + 0.5 * dt, _move(y, (0.5 * dt, k2)))
        k4 = rhs(t + dt, _move(y, (dt, k3)))
        return _move(y, (dt / 6, k1), (dt / 3, k2), (dt / 3, k3), (dt / 6, k4)), beside


@dataclasses.dataclass(frozen=True)
class Leapfrog(Integrator):
    """Kick, drift, kick for x' = v, v' = a(t, x, v): the first half of the state are positions, the second velocities.

    With damping the second kick needs the velocity it is computing. `corrected` predicts it, kicks with the
    prediction, and hands that acceleration to the next step: second order at two evaluations a step. Without
    (`corrected=False`, as published) the second kick uses the half-step velocity and the scheme is first order.
    """

    corrected: bool = True
    second_order: ClassVar[bool] = True

    def start(self, rhs: Rhs, t: Time, y: State) -> Carry:
        return y, rhs(t, y)[len(y) // 2 :]

    def step(self, rhs: Rhs, t: Time, dt: float, carry: Carry) -> Carry:
        y, acceleration = carry
        half = len(y) // 2
        x, v = y[:half], y[half:]
        if not self.corrected:
            acceleration = rhs(t, y)[half:]
        v_half = _move(v, (0.5 * dt, acceleration))
        x = _move(x, (dt, v_half))
        acceleration = rhs(t + dt, x + v_half)[half:]
        v = _move(v_half, (0.5 * dt, acceleration))
        if self.corrected:
            acceleration = rhs(t + dt, x + v)[half:]
            v = _move(v_half, (0.5 * dt, acceleration))
        return x + v, acceleration


@dataclasses.dataclass(frozen=True)
class Adaptive(Integrator):
    """Steps of any length, by error control (diffrax): far more expensive than a fixed step.

    - `solver`: "tsit5" and "dopri8" for smooth problems, "kvaerno3" and "kvaerno5" for stiff ones.
    - `rtol`, `atol`: relative and absolute error allowed in a step; `max_steps`: a solve that needs more counts as failed.
    """

    solver: str = "tsit5"
    rtol: float = 1e-5
    atol: float = 1e-6
    max_steps: int = 4096
    adaptive: ClassVar[bool] = True

    SOLVERS: ClassVar[tuple[str, ...]] = ("tsit5", "dopri8", "kvaerno3", "kvaerno5")
    IMPLICIT: ClassVar[tuple[str, ...]] = ("kvaerno3", "kvaerno5")

    def __post_init__(self) -> None:
        if self.solver not in self.SOLVERS:
            raise ValueError(f"Adaptive: solver {self.solver!r} is not one of {', '.join(self.SOLVERS)}")
        if not (self.rtol > 0 and self.atol > 0 and self.max_steps > 0):
            raise ValueError("Adaptive: rtol, atol and max_steps must be positive")

    def solve(
        self, rhs: Rhs, start: State, span: tuple[Time, Time], times: Float[Array, " time"], backward: bool
    ) -> State:
        import diffrax  # a second of import time that fixed-step problems never pay

        stiff, control = self.solver in self.IMPLICIT, diffrax.PIDController(rtol=self.rtol, atol=self.atol)
        field, first = (_flagged_rhs(rhs, start, backward), _flagged(start)) if stiff else (rhs, start)
        if stiff:
            own = control.norm
            # A step in which the flag went up is to be rejected.
            control = dataclasses.replace(control, norm=lambda error: own(error[0]) + 1e6 * jnp.abs(error[1]))
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, args: field(t, y)),
            getattr(diffrax, self.solver.capitalize())(),
            *span,
            dt0=None,
            y0=first,
            saveat=diffrax.SaveAt(ts=times),
            stepsize_controller=control,
            max_steps=self.max_steps,
            adjoint=diffrax.RecursiveCheckpointAdjoint() if backward else diffrax.ForwardMode(),
            throw=False,
        )
        states = _read_flagged(solution.ys, backward) if stiff else solution.ys
        # A failed solve is a value: NaN here, a rejected proposal in the sampler.
        good = solution.result == diffrax.RESULTS.successful
        return jax.tree.map(lambda y: jnp.where(good, y, jnp.nan), states)


# Implicit steps whose failures are values. The derivative of an implicit step is a linear solve that raises where it meets
# what is not finite, also in a trial step that is going to be rejected, and also for one member of a batch alone. Here
# nothing gets there that is not finite: where the equation cannot be evaluated its rate is taken as zero, and a flag goes up
# that is integrated with the state,
#
#     d(state)/dt = rate or 0,    d(flag)/dt = 0 or 1.
#
# A step that crosses into such a place has a large error of the flag, and is rejected; a solve that ends with its flag up
# has failed. In forward mode the tangent of the flag tells in the same way of derivatives that are not finite.


def _bounded(tree: PyTree[Array]) -> Bool[Array, ""]:
    """Is everything finite, and small enough that products of two are?"""
    return jnp.all(jnp.stack([jnp.all(jnp.abs(x) < jnp.finfo(x.dtype).max ** 0.4) for x in jax.tree.leaves(tree)]))


def _flagged(start: State) -> Flagged:
    """The initial state with what is not finite as zero, and its flag."""
    fine = jnp.all(jnp.stack([jnp.all(jnp.isfinite(y)) for y in start]))
    return tuple(jnp.where(jnp.isfinite(y), y, 0.0) for y in start), jnp.where(fine, 0.0, 1.0)


def _flagged_rhs(rhs: Rhs, start: State, backward: bool) -> Callable[[Time, Flagged], Flagged]:
    """The right-hand side of state and flag, from that of the state."""
    there = lax.stop_gradient(_flagged(start)[0])

    def field(t: Time, flagged: Flagged) -> Flagged:
        y, flag = flagged
        fixed = lax.stop_gradient(y)
        fine = _bounded((fixed, lax.stop_gradient(rhs(t, fixed))))
        # Even a zero sent back through what is not finite is NaN: there the initial state takes its place.
        found = _raised_unless(fine, rhs(t, either(fine, y, there)), flag)
        return found if backward else _watched(found)

    return field


def _raised_unless(fine: Bool[Array, ""], rates: State, flag: Array) -> Flagged:
    zeros = jax.tree.map(jnp.zeros_like, rates)
    return either(fine, (rates, jnp.zeros_like(flag)), (zeros, jnp.ones_like(flag)))


@jax.custom_jvp
def _watched(flagged: Flagged) -> Flagged:
    """As it is; where its tangent is not finite, that is zero and the flag's is one."""
    return flagged


@_watched.defjvp
def _watched_jvp(primals: tuple[Flagged], tangents: tuple[Flagged]) -> tuple[Flagged, Flagged]:
    rates, flag = tangents[0]
    return primals[0], _raised_unless(_bounded(rates), rates, flag)


def _read_flagged(flagged: Flagged, backward: bool) -> State:
    """The states, or NaN where the flag went up on the way to the last of them."""
    states = _nan_if_raised(*flagged)
    return states if backward else _told(states, flagged[1])


def _nan_if_raised(states: State, flag: Float[Array, " time"]) -> State:
    return jax.tree.map(lambda y: jnp.where(flag[-1] != 0, jnp.nan, y), states)


@jax.custom_jvp
def _told(states: State, flag: Array) -> State:
    """As they are; their tangent is NaN where that of the flag went up."""
    return states


@_told.defjvp
def _told_jvp(primals: tuple[State, Array], tangents: tuple[State, Array]) -> tuple[State, State]:
    return primals[0], _nan_if_raised(*tangents)
