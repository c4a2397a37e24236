"""What sensors see of a solution: components of the state, or any function of it."""

from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..parameters import Parameters, System, Theta, check_name
from ._index import Numbers, ObservationIndex, Predictions, States
from ._shared import ProblemError, bundle, scalars, takes, trace

Observed = Sequence[str] | str | Mapping[str, Callable[..., Numbers]] | None


class ObservationOperator:
    """Observed quantities by name: states themselves, or functions (state, p) or (state, p, place) of them.

    `place` is the time of an ODE; in fields it is (t, x), (x, y) or (t, x, y).
    """

    def __init__(self, observed: Observed, states: tuple[str, ...], parameters: Parameters, axes: int):
        self.states, self.parameters = states, parameters
        self.functions = dict(observed) if isinstance(observed, Mapping) else None
        self.record = bundle("state", states)
        names = states if observed is None else (observed,) if isinstance(observed, str) else tuple(observed)
        self.names: tuple[str, ...] = names
        if not names:
            raise ProblemError("nothing is observed; name a state, or give functions of it")
        for name in names:
            if self.functions is not None:
                check_name(name, "observed")
                if not callable(self.functions[name]):
                    raise ProblemError(
                        f"observed {name!r} is {self.functions[name]!r}; write a function like lambda state, p: ..."
                    )
            elif name not in states:
                raise ProblemError(
                    f"observed {name!r} is not part of the solution, which is {', '.join(states)}. A function of it is written as "
                    f"observed={{{name!r}: lambda state, p: ...}}"
                )

        if self.functions is not None:
            count = len(states)

            def probe(theta: Array, *numbers: Array) -> Array:
                return self.quantities(theta, jnp.stack(numbers[count:]), jnp.stack(numbers[:count]), 0)

            trace(probe, len(parameters), count + axes, "what is observed")

    @property
    def columns(self) -> np.ndarray | None:
        """Which state each quantity is; None where some are functions."""
        return None if self.functions is not None else np.array([self.states.index(name) for name in self.names])

    def quantities(
        self, theta: Theta, place: Float[Array, " axis"], state: Float[Array, " state"], system: System
    ) -> Float[Array, " quantity"]:
        """All quantities of one state."""
        if self.functions is None:
            return state[self.columns]
        p = self.parameters.constrain(theta, system)
        here = place[0] if place.shape[0] == 1 else place
        found: list[Array] = []
        for name, function in self.functions.items():
            more = (here,) if takes(function, 3) else ()
            found += scalars(function(self.record(*state), p, *more), f"observed {name!r}", (name,))
        return jnp.stack(found)

    def on_grid(
        self, theta: Theta, places: Float[Array, "point axis"], states: States, system: System
    ) -> Float[Array, "point quantity"]:
        """All quantities at all points."""
        if self.functions is None:
            return states[:, self.columns]
        return jax.vmap(lambda place, state: self.quantities(theta, place, state, system))(places, states)

    def __call__(
        self, theta: Theta, where: ObservationIndex, states: Float[Array, "observation state"], system: System
    ) -> Predictions:
        """Of the state at each observed place the quantity that was observed there."""
        return self.on_grid(theta, where.place, states, system)[jnp.arange(states.shape[0]), where.quantity]
