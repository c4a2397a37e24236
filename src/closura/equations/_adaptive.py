"""diffrax's adaptive and implicit integrators, for a problem's state as a tuple."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._integrators import Adaptive, Rhs, State


def solve_adaptive(
    scheme: Adaptive, rhs: Rhs, start: State, begin: float, times: Float[Array, " time"], end: Any, backward: bool
) -> State:
    """States at times, which lie between begin and end; `backward`: derivatives are wanted in reverse mode."""
    import diffrax  # a second of import time that fixed-step problems never pay

    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, y, args: rhs(t, y)),
        getattr(diffrax, scheme.SOLVERS[scheme.solver])(),
        begin,
        end,
        dt0=None,
        y0=start,
        saveat=diffrax.SaveAt(ts=times),
        stepsize_controller=diffrax.PIDController(rtol=scheme.rtol, atol=scheme.atol),
        max_steps=scheme.max_steps,
        adjoint=diffrax.RecursiveCheckpointAdjoint() if backward else diffrax.ForwardMode(),
        throw=False,
    )
    # A failed solve is a value: NaN here, a rejected proposal in the sampler.
    good = solution.result == diffrax.RESULTS.successful
    return jax.tree.map(lambda y: jnp.where(good, y, jnp.nan), solution.ys)
