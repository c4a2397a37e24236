"""What is known of an evolution before it is solved: the initial fields, and values or derivatives at the ends of every axis."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._index import Numbers
from .._integrators import State, Time
from .._shared import scalars
from ._grid import AtEnds, Grid
from ._schemes import Dirichlet, Given, Neumann

Known = Callable[[Time, State], Float[Array, " field"]]  # of a time and a place


@dataclasses.dataclass(frozen=True, eq=False)
class InitialBoundaryConditions:
    """Initial and boundary conditions of fields on a grid, for parameters p."""

    grid: Grid
    span: tuple[float, float]
    initial: Callable[..., Numbers]
    names: tuple[str, ...]
    p: object

    def begin(self, x: State) -> State:
        """The initial fields at one place."""
        return scalars(self.initial(self.grid.place(x), self.p), "initial(x, p)", self.names)

    def start(self) -> State:
        """The initial fields on the grid; a given value at an end comes before what the initial state says there."""
        fields = self.grid.each(self.begin)(self.grid.nodes)
        return self._put(fields, lambda values: values(jnp.asarray(self.span[0], float)))

    def moving(self, rates: State, t: Time) -> State:
        """Rates with those of values that are given at the ends."""
        time = jnp.asarray(t, float)
        return self._put(rates, lambda values: jax.jvp(values, (time,), (jnp.ones_like(time),))[1])

    def at_ends(self, t: Time) -> list[AtEnds]:
        """Of each field its derivatives at the ends of every axis, where any end has one that is not zero."""
        ends = [end for line in self.grid.lines for end in line.ends]
        if not any(isinstance(end, Neumann) and end != Neumann() for end in ends):
            return [None] * len(self.names)
        # Zero where they are not given: no row of the scheme asks for those.
        given = [self._each(end.slope if isinstance(end, Neumann) else 0.0, t, "a Neumann slope") for end in ends]
        return [tuple(zip(each[::2], each[1::2])) for each in zip(*given)]

    def lift(self, t: Time, x: State) -> Float[Array, " field"]:
        """The initial state, moved so that it has the values which are given at the ends."""

        def initial(t: Time, x: State) -> Array:
            return jnp.stack(self.begin(x))

        known: Known = initial
        for axis in range(len(self.grid.lines)):
            known = self._moved(known, axis)
        return known(t, x)

    def _put(self, fields: State, at: Callable[[Callable[[Array], State]], State]) -> State:
        """Fields with others at the ends that have values: `at` makes them from the values as functions of time."""
        # Sides along y come last: where values of two sides differ, a corner has that of the side along y.
        for axis, line in enumerate(self.grid.lines):
            for side, end in enumerate(line.ends):
                if isinstance(end, Dirichlet):
                    values = at(self._along(end, axis, side))
                    fields = tuple(self.grid.put(u, axis, side, v) for u, v in zip(fields, values))
        return fields

    def _along(self, end: Dirichlet, axis: int, side: int) -> Callable[[Array], State]:
        """The values at an end of an axis, all along it, as a function of time."""
        return lambda t: self.grid.at_end(lambda x: self._held(end, t, x), axis, side)

    def _held(self, end: Dirichlet, t: Time, x: State) -> State:
        """The values at a place of an end."""
        return self.begin(x) if end.value is None else self._each(end.value, t, "a Dirichlet value")

    def _moved(self, known: Known, axis: int) -> Known:
        """What is known, moved so that it has the values which are given at the ends of an axis.

        A value that is there from the start but not in the initial state spreads from its end as heat does.
        """
        line, first = self.grid.lines[axis], jnp.asarray(self.span[0], float)

        def moved(t: Time, x: State) -> Array:
            total, share = known(t, x), line.share(x[axis])
            depth = jnp.sqrt((t - self.span[0]) / (self.span[1] - self.span[0]) + 1e-12)
            for end, at, near in zip(line.ends, line.domain, (1 - share, share)):
                if not isinstance(end, Dirichlet):
                    continue
                there = (*x[:axis], jnp.asarray(at, float), *x[axis + 1 :])
                held, begun = (jnp.stack(self._held(end, time, there)) for time in (t, first))
                before = known(first, there)
                change = held - begun - (known(t, there) - before if axis else 0.0)
                move = near * (change + (begun - before) * jnp.exp((near - 1) / depth))
                total = total + self._beside(x, axis) * move
            return total

        return moved

    def _beside(self, x: State, axis: int) -> Float[Array, ""] | float:
        """How much of a move for ends of y is left near ends of x: all, unless the two may differ where they meet."""
        ends = [[end for end in line.ends if isinstance(end, Dirichlet)] for line in self.grid.lines]
        if axis == 0 or all(one == other for one in ends[0] for other in ends[1]):
            return 1.0
        squares = []
        for at, line in zip(x, self.grid.lines):
            near = [abs(line.share(at) - side) for side, end in enumerate(line.ends) if isinstance(end, Dirichlet)]
            squares.append(jnp.min(jnp.stack(near)) ** 2)
        return (squares[0] + 1e-9) / (squares[0] + squares[1] + 1e-9)

    def _each(self, given: Given, t: Time, what: str) -> State:
        """One number a field, from what is given for all or for each, as numbers or functions of (t, p)."""
        found = given(t, self.p) if callable(given) else given
        parts = found if isinstance(found, tuple) else (found,)
        parts = tuple(part(t, self.p) if callable(part) else part for part in parts)
        return scalars(parts * len(self.names) if len(parts) == 1 else parts, what, self.names)
