"""Time integrators. Fixed-step ones are (start, step) pairs scanned over the grid; diffrax does the adaptive ones.

State is a tuple of numbers, or of fields on a grid; `rhs(t, y)` is the physics of one system. (A tuple, not a vector: in
a batch each component is then one contiguous array over chains and systems, which the compiler turns into straight loops.)
"""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._stiff import Rhs as Rhs, State as State, flagged, read_flagged


def _move(y: State, *steps: tuple[float, State]) -> State:
    """y + sum of factor x direction."""
    for factor, direction in steps:
        y = tuple(yi + factor * di for yi, di in zip(y, direction))
    return y


class Integrator:
    """`start` makes the carry of a scan over steps, `step` moves it on, `state` reads it. An `adaptive` one has no steps of its own.

    `second_order`: the second half of the state are taken for the time derivatives of the first.
    """

    adaptive: ClassVar[bool] = False
    second_order: ClassVar[bool] = False

    def check(self, state: tuple[str, ...]) -> None:
        """Raise if this scheme cannot hold such a state."""

    def start(self, rhs: Rhs, t: Any, y: State) -> Any:
        raise NotImplementedError

    def step(self, rhs: Rhs, t: Any, dt: float, carry: Any) -> Any:
        raise NotImplementedError

    def state(self, carry: Any) -> State:
        raise NotImplementedError

    def solve(
        self, rhs: Rhs, start: State, span: tuple[float, Any], times: Float[Array, " time"], backward: bool
    ) -> State:
        """States at times, of an adaptive one; `backward`: derivatives are wanted in reverse mode."""
        raise NotImplementedError

    def ignored(self, y: State, rates: State) -> list[int]:
        """The states whose rates are not read, and are not what the scheme takes them for."""
        return []


@dataclasses.dataclass(frozen=True)
class RK4(Integrator):
    """Classical Runge-Kutta, fourth order: four evaluations a step. The default."""

    def start(self, rhs: Rhs, t: Any, y: State) -> Any:
        return y

    def step(self, rhs: Rhs, t: Any, dt: float, carry: Any) -> Any:
        y = carry
        k1 = rhs(t, y)
        k2 = rhs(t + 0.5 * dt, _move(y, (0.5 * dt, k1)))
        k3 = rhs(t + 0.5 * dt, _move(y, (0.5 * dt, k2)))
        k4 = rhs(t + dt, _move(y, (dt, k3)))
        return _move(y, (dt / 6, k1), (dt / 3, k2), (dt / 3, k3), (dt / 6, k4))

    def state(self, carry: Any) -> State:
        return carry


@dataclasses.dataclass(frozen=True)
class Leapfrog(Integrator):
    """Kick, drift, kick for x' = v, v' = a(t, x, v): the first half of the state are positions, the second velocities.

    With damping the second kick needs the velocity it is computing. `corrected` predicts it, kicks with the
    prediction, and hands that acceleration to the next step: second order at two evaluations a step. Without
    (`corrected=False`, as published) the second kick uses the half-step velocity and the scheme is first order.
    """

    corrected: bool = True
    second_order: ClassVar[bool] = True

    def check(self, state: tuple[str, ...]) -> None:
        if len(state) % 2:
            raise ValueError(
                f"Leapfrog needs positions and then as many velocities, got states {', '.join(state)}; "
                "use RK4() for other equations"
            )

    def ignored(self, y: State, rates: State) -> list[int]:
        """The positions whose rate is not the velocity in the same place of the second half: it would not be read."""
        half = len(y) // 2
        return [i for i in range(half) if not np.isclose(rates[i], y[half + i], rtol=1e-4)]

    def start(self, rhs: Rhs, t: Any, y: State) -> Any:
        return y, rhs(t, y)[len(y) // 2 :]

    def step(self, rhs: Rhs, t: Any, dt: float, carry: Any) -> Any:
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

    def state(self, carry: Any) -> State:
        return carry[0]


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

    SOLVERS: ClassVar[dict[str, str]] = {
        "tsit5": "Tsit5",
        "dopri8": "Dopri8",
        "kvaerno3": "Kvaerno3",
        "kvaerno5": "Kvaerno5",
    }
    IMPLICIT: ClassVar[tuple[str, ...]] = ("kvaerno3", "kvaerno5")

    def __post_init__(self) -> None:
        if self.solver not in self.SOLVERS:
            raise ValueError(f"Adaptive: solver {self.solver!r} is not one of {', '.join(self.SOLVERS)}")
        if not (self.rtol > 0 and self.atol > 0 and self.max_steps > 0):
            raise ValueError("Adaptive: rtol, atol and max_steps must be positive")

    def solve(
        self, rhs: Rhs, start: State, span: tuple[float, Any], times: Float[Array, " time"], backward: bool
    ) -> State:
        import diffrax  # a second of import time that fixed-step problems never pay

        control, stiff = diffrax.PIDController(rtol=self.rtol, atol=self.atol), self.solver in self.IMPLICIT
        parts: tuple[Any, Any, Any] = (lambda t, y, args: rhs(t, y)), start, control
        field, first, control = flagged(rhs, start, control, backward) if stiff else parts
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(field),
            getattr(diffrax, self.SOLVERS[self.solver])(),
            *span,
            dt0=None,
            y0=first,
            saveat=diffrax.SaveAt(ts=times),
            stepsize_controller=control,
            max_steps=self.max_steps,
            adjoint=diffrax.RecursiveCheckpointAdjoint() if backward else diffrax.ForwardMode(),
            throw=False,
        )
        states = read_flagged(solution.ys, backward) if stiff else solution.ys
        # A failed solve is a value: NaN here, a rejected proposal in the sampler.
        good = solution.result == diffrax.RESULTS.successful
        return jax.tree.map(lambda y: jnp.where(good, y, jnp.nan), states)
