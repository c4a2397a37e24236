"""What is known of an evolution before it is solved: the initial fields, and values or slopes at the ends of every axis."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._integrators import State
from .._shared import scalars
from ._grid import Grid, Slopes
from ._schemes import Dirichlet, Neumann

Known = Callable[[Any, tuple[Any, ...]], Float[Array, " field"]]  # of a time and a place


@dataclasses.dataclass(frozen=True, eq=False)
class InitialBoundaryConditions:
    """Initial and boundary conditions of fields on a grid, for parameters p."""

    grid: Grid
    span: tuple[float, float]
    initial: Callable[..., Any]
    names: tuple[str, ...]

    def begin(self, x: Any, p: Any) -> State:
        """The initial fields at one place."""
        return scalars(self.initial(x, p), "initial(x, p)", self.names)

    def start(self, p: Any) -> State:
        """The initial fields on the grid; a given value at an end comes before what the initial state says there."""
        fields = self.grid.each(lambda x: self.begin(x, p))(self.grid.nodes)
        return self._put(fields, p, lambda values: values(jnp.asarray(self.span[0], float)))

    def moving(self, rates: State, t: Any, p: Any) -> State:
        """Rates with those of values that are given at the ends."""
        time = jnp.asarray(t, float)
        return self._put(rates, p, lambda values: jax.jvp(values, (time,), (jnp.ones_like(time),))[1])

    def slopes(self, t: Any, p: Any) -> list[Slopes]:
        """Of each field those at the ends of every axis, where any end has one that is not zero."""
        ends = [end for line in self.grid.lines for end in line.ends]
        if not any(isinstance(end, Neumann) and end != Neumann() for end in ends):
            return [None] * len(self.names)
        # Zero where they are not given: no row of the scheme asks for those.
        given = [self._each(end.slope if isinstance(end, Neumann) else 0.0, t, p, "a Neumann slope") for end in ends]
        return [tuple(zip(each[::2], each[1::2])) for each in zip(*given)]

    def known(self, snapshots: int) -> np.ndarray:
        """Which points of all snapshots are known: the initial state is, and ends that have a value."""
        mask = np.zeros((snapshots + 1, *self.grid.shape), bool)
        mask[0] = True
        for axis, line in enumerate(self.grid.lines, start=1):
            for end, place in zip(line.ends, (0, -1)):
                np.moveaxis(mask, axis, 0)[place] |= isinstance(end, Dirichlet)
        return mask.ravel()

    def lift(self, place: Float[Array, " axis"], p: Any) -> Float[Array, " field"]:
        """The initial state at (t, x) or (t, x, y), moved so that it has the values which are given at the ends."""

        def initial(t: Any, x: tuple[Any, ...]) -> Array:
            return jnp.stack(self.begin(self.grid.place(x), p))

        known: Known = initial
        for axis in range(len(self.grid.lines)):
            known = self._moved(known, axis, p)
        return known(place[0], tuple(place[1:]))

    def cutoff(self, place: Float[Array, " axis"]) -> Float[Array, ""]:
        """Zero at the start and at ends with given values, about one elsewhere: what is added there changes nothing known."""
        (t, *x), (begin, end) = place, self.span
        factor = -jnp.expm1(-8 * (t - begin) / (end - begin))
        for at, line in zip(x, self.grid.lines):
            share = (at - line.domain[0]) / (line.domain[1] - line.domain[0])
            at_low, at_high = (isinstance(end, Dirichlet) for end in line.ends)
            if at_low and at_high:
                factor = factor * 4 * share * (1 - share)
            else:
                factor = factor * (share * (2 - share) if at_low else (1 - share) * (1 + share) if at_high else 1.0)
        return factor

    def _put(self, fields: State, p: Any, at: Callable[[Callable[[Any], State]], State]) -> State:
        """Fields with others at the ends that have values: `at` makes them from the values as functions of time."""
        # Sides along y come last: where values of two sides differ, a corner has that of the side along y.
        for axis, line in enumerate(self.grid.lines):
            for side, end in enumerate(line.ends):
                if isinstance(end, Dirichlet):
                    values = at(self._along(end, axis, line.domain[side], p))
                    fields = tuple(self.grid.put(u, axis, side, v) for u, v in zip(fields, values))
        return fields

    def _along(self, end: Dirichlet, axis: int, where: float, p: Any) -> Callable[[Any], State]:
        """The values at an end of an axis, all along it, as a function of time."""
        if end.value is not None:
            return lambda t: self._each(end.value, t, p, "a Dirichlet value")
        x = self.grid.along(axis, where)
        kept = jax.vmap(lambda x: self.begin(x, p))(x) if self.grid.plane else self.begin(x, p)
        return lambda t: kept

    def _held(self, end: Dirichlet, t: Any, x: tuple[Any, ...], p: Any) -> Float[Array, " field"]:
        """The values at a place of an end."""
        if end.value is None:
            return jnp.stack(self.begin(self.grid.place(x), p))
        return jnp.stack(self._each(end.value, t, p, "a Dirichlet value"))

    def _moved(self, known: Known, axis: int, p: Any) -> Known:
        """What is known, moved so that it has the values which are given at the ends of an axis.

        A value that is there from the start but not in the initial state spreads from its end as heat does.
        """
        line, first = self.grid.lines[axis], jnp.asarray(self.span[0], float)
        low, high = line.domain

        def moved(t: Any, x: tuple[Any, ...]) -> Array:
            total, share = known(t, x), (x[axis] - low) / (high - low)
            depth = jnp.sqrt((t - self.span[0]) / (self.span[1] - self.span[0]) + 1e-12)
            for end, at, near in zip(line.ends, line.domain, (1 - share, share)):
                if not isinstance(end, Dirichlet):
                    continue
                there = (*x[:axis], jnp.asarray(at, float), *x[axis + 1 :])
                held, begun = self._held(end, t, there, p), self._held(end, first, there, p)
                before = known(first, there)
                change = held - begun - (known(t, there) - before if axis else 0.0)
                move = near * (change + (begun - before) * jnp.exp((near - 1) / depth))
                total = total + self._beside(x, axis) * move
            return total

        return moved

    def _beside(self, x: tuple[Any, ...], axis: int) -> Any:
        """How much of a move for ends of y is left near ends of x: all, unless the two may differ where they meet."""
        ends = [[end for end in line.ends if isinstance(end, Dirichlet)] for line in self.grid.lines]
        if axis == 0 or all(one == other for one in ends[0] for other in ends[1]):
            return 1.0
        squares = []
        for at, line, held in zip(x, self.grid.lines, ends):
            share = (at - line.domain[0]) / (line.domain[1] - line.domain[0])
            near = [abs(share - side) for side, end in enumerate(line.ends) if any(end is one for one in held)]
            squares.append(jnp.min(jnp.stack(near)) ** 2)
        return (squares[0] + 1e-9) / (squares[0] + squares[1] + 1e-9)

    def _each(self, given: Any, t: Any, p: Any, what: str) -> State:
        """One number a field, from what is given for all or for each, as numbers or functions of (t, p)."""
        count = len(self.names)
        parts = given if isinstance(given, tuple) else (given(t, p) if callable(given) else given,)
        parts = tuple(part(t, p) if callable(part) else part for part in parts)
        parts = parts[0] if len(parts) == 1 and isinstance(parts[0], tuple) else parts
        return scalars(parts * count if len(parts) == 1 else parts, what, self.names)
