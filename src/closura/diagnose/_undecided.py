"""What data do not decide: combinations of numbers and laws that are as wide after data as before.

    C posterior C^T = lambda C prior C^T,       lambda > 1/2

over population means, shared parameters and laws. A law counts by what everybody asks of it where solutions went: its level,
its slope, its bend and its size; what it does elsewhere, and wiggles that no data see, are the prior's and nobody's question.
What moves along with such a combination is named, and what of it data do decide: a ratio, a sum.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

OPEN = 0.5  # of the prior's variance is left: data do not decide
TIED = 0.5  # of the variance of a number, or of a law, that a combination explains
ALIKE = 0.9  # of a change of a law, that is of a simple shape
NEARLY = 0.02  # between shapes that are as good
MATTERS = 0.05  # of the size of a law: changes that anybody would see
NOTHING = 1e-8

# By whether all move in one direction, and whether they are two.
RATIOS = {(True, True): "their ratio", (False, True): "their product", (True, False): "their ratios"}
RATIOS[False, False] = "their products and ratios"
SUMS = {(True, True): "their difference", (False, True): "their sum", (True, False): "their differences"}
SUMS[False, False] = "their sums and differences"

Square = Float[np.ndarray, "all all"]


class Number(NamedTuple):
    """An unknown number as people call it; on the log scale, or as it is. A parameter that differs between systems counts by its
    mean over these."""

    name: str
    log: bool = False


class OnGrid(NamedTuple):
    """An unknown law where it was called: as often at a place as solutions were there; its mean is (point,)."""

    name: str
    inputs: tuple[str, ...]
    grid: Float[np.ndarray, "point input"]
    mean: Float[np.ndarray, " point"]


class Unknowns(NamedTuple):
    """What covariances below are of: the numbers, then every law at the points of its grid."""

    numbers: Sequence[Number]
    laws: Sequence[OnGrid] = ()

    @property
    def places(self) -> list[slice]:
        """Of each law."""
        ends = np.cumsum([len(self.numbers), *(len(law.grid) for law in self.laws)])
        return [slice(*pair) for pair in zip(ends[:-1].tolist(), ends[1:].tolist())]


class Party(NamedTuple):
    """Who moves along with an undecided combination, in which direction, and on which scale: log, plain, or unclear ("").

    `kind`: a number, the mean of a population, a law, or part of one, whose name is `owner`.
    """

    name: str
    kind: str
    owner: str
    sign: float = 1.0
    scale: str = ""


class Undecided(NamedTuple):
    """An undecided combination: who takes part. Alone, nothing is known of it; else all but something they have together."""

    parties: tuple[Party, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(party.name for party in self.parties)

    @property
    def lead(self) -> str:
        """Whom it is about."""
        return self.parties[0].owner

    @property
    def known(self) -> str:
        """What of them data do decide."""
        count, scales = len(self.parties), {party.scale for party in self.parties}
        alike = len({party.sign > 0 for party in self.parties}) == 1
        if count == 1:
            return ""
        if scales == {"log"}:
            return RATIOS[alike, count == 2]
        if scales == {"plain"}:
            return SUMS[alike, count == 2]
        return "a combination of them"

    def __str__(self) -> str:
        return listed(self.names) + (f": only {self.known}" if self.known else "")


def listed(names: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def in_words(found: Iterable[Undecided]) -> str:
    """All of them: those that stand alone first, in one breath."""
    found = list(found)
    alone = listed([one.names[0] for one in found if len(one.parties) == 1])
    return "; nor ".join([*filter(None, [alone]), *(str(one) for one in found if len(one.parties) > 1)])


def advice(one: Undecided) -> str:
    """The same as a sentence, with what can be done about it."""
    kinds = {kind: [party.name for party in one.parties if party.kind == kind] for kind in ("number", "mean", "law")}
    begun = f"Data do not decide {one}"
    if kinds["law"]:
        return (
            f"{begun}: no observation depends on it enough, and its band is that of the prior. Observe what it acts on."
        )
    if kinds["mean"] and not kinds["number"]:
        return (
            f"{begun}: so few systems say little of a population, and its prior speaks. What is said of the systems themselves "
            "stands; hierarchy=False does without a population."
        )
    fixed = "a value of the law that is known, as in cl.Law(at={1.0: 0.5})"
    if kinds["number"]:
        also = f", or {fixed}" if any(party.kind == "part" for party in one.parties) else ""
        fixed = f"{kinds['number'][0]} (a plain number among the parameters){also}"
    if one.known:
        return (
            f"{begun}. The interval of each is what priors allow; what they have together is known, draw by draw. To tell them "
            f"apart, fix {fixed}."
        )
    return f"{begun}: the prior speaks. Fix {fixed}, or observe something that depends on it more."


def undecided(unknowns: Unknowns, prior: Square, posterior: Square) -> list[Undecided]:
    """From covariances of `unknowns` before and after data."""
    rows, found = [np.eye(len(prior))[: len(unknowns.numbers)]], []
    for law, place in zip(unknowns.laws, unknowns.places):
        asked = _questions(law)
        mine = np.zeros((len(asked), len(prior)))
        mine[:, place] = asked
        values = _generalised(mine @ prior @ mine.T, mine @ posterior @ mine.T)[0]
        if len(values) and values.min() > OPEN:
            found.append(Undecided((Party(f"the law {law.name}", "law", law.name),)))
        else:
            rows.append(mine)
    reduce = np.concatenate(rows)
    values, combinations = _generalised(reduce @ prior @ reduce.T, reduce @ posterior @ reduce.T)
    return found + _named(unknowns, (combinations @ reduce)[values > OPEN], posterior)


def lonely_means(
    numbers: Sequence[Number], contraction: Float[np.ndarray, " number"], said: Sequence[Undecided]
) -> list[Undecided]:
    """Of parameters that are decided, means of the population that are not: there are too few systems."""
    before = {party.owner for one in said for party in one.parties}
    return [
        Undecided((Party(f"the mean of {'log ' * number.log}{number.name} in the population", "mean", number.name),))
        for number, share in zip(numbers, contraction)
        if share < 1 - OPEN and number.name not in before
    ]


def _questions(law: OnGrid) -> Float[np.ndarray, "question point"]:
    """Orthonormal weights of a law's values that tell its level, slope and bend, and how large it is."""
    shapes = np.stack([np.ones(len(law.grid)), *_units(law).T, *(_units(law).T ** 2), law.mean], axis=1)
    size = np.linalg.norm(shapes, axis=0)
    vectors, values, _ = np.linalg.svd(shapes[:, size > 0] / size[size > 0], full_matrices=False)
    return vectors[:, values > 1e-3 * values[0]].T / np.sqrt(len(law.grid))


def _units(law: OnGrid) -> Float[np.ndarray, "point input"]:
    """Inputs about zero, of size one."""
    spread = law.grid.std(axis=0)
    return (law.grid - law.grid.mean(axis=0)) / np.where(spread > 0, spread, 1.0)


def _generalised(prior: np.ndarray, posterior: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Largest first, values and combinations (combination, row) of unit variance before data; what has no variance there is
    left out."""
    size = np.sqrt(np.diag(prior))
    there = size > NOTHING * size.max(initial=0.0)
    unit = np.where(there, size, 1.0)
    values, vectors = np.linalg.eigh(np.where(np.outer(there, there), prior / np.outer(unit, unit), 0.0))
    kept = values > 1e-6
    white = (vectors[:, kept] / np.sqrt(values[kept])).T / unit
    values, turn = np.linalg.eigh(white @ posterior @ white.T)
    return values[::-1], (turn.T @ white)[::-1]


def _named(unknowns: Unknowns, ways: Float[np.ndarray, "way all"], posterior: Square) -> list[Undecided]:
    """Who moves along with the combinations `ways`, one after the other: what was said is taken out of the rest."""
    numbers, found = len(unknowns.numbers), []
    while len(ways):
        spread, along = ways @ posterior @ ways.T, ways @ posterior
        explained = np.linalg.solve(spread, along[:, :numbers])
        own = np.maximum(np.diag(posterior)[:numbers], 1e-300)
        share = np.sum(along[:, :numbers] * explained, axis=0) / own
        # A number is easier to speak of than a combination, where it is one.
        first = int(np.argmax(share)) if numbers and share.max() > TIED else None
        mixture = np.eye(len(ways))[0] if first is None else explained[:, first]
        moved = mixture @ along / (mixture @ spread @ mixture)  # of everything, by one of the combination
        parties = _parties(unknowns, moved, posterior, float(mixture @ spread @ mixture))
        if parties:
            found.append(Undecided(tuple(parties)))
        rest = np.linalg.svd((mixture @ spread)[None])[2][1:]
        ways = rest @ ways
    return found


def _parties(unknowns: Unknowns, moved: Float[np.ndarray, " all"], posterior: Square, variance: float) -> list[Party]:
    """Of a combination with this variance, by which everything is moved so much."""
    numbers = len(unknowns.numbers)
    share = moved[:numbers] ** 2 * variance / np.maximum(np.diag(posterior)[:numbers], 1e-300)
    parties = [
        Party(number.name, "number", number.name, float(np.sign(by)), "log" if number.log else "plain")
        for number, by, tied in zip(unknowns.numbers, moved[:numbers], share > TIED)
        if tied
    ]
    sign = parties[0].sign if parties and all(party.scale == "log" for party in parties) else 0.0
    for law, place in zip(unknowns.laws, unknowns.places):
        change = moved[place]
        square, size = float(np.mean(change**2)), float(np.mean(law.mean**2))
        if not square * variance > MATTERS**2 * size * (not parties) or square == 0:
            continue
        whole = change @ posterior[place, place] @ change / len(change) ** 2
        if variance * square**2 > TIED * whole:
            parties.append(_law_party(law, change, sign))
    # A part of a law that has no simple shape is nobody's question.
    return _on_one_scale(parties) if any(party.scale for party in parties) else []


def _law_party(law: OnGrid, change: Float[np.ndarray, " point"], log_sign: float) -> Party:
    """A change of a law by its shape; `log_sign`: in which direction positive numbers go along, 0 where there are others.

    Of shapes that are as good: a constant is one also where the law is nearly constant; where a law in proportion to its
    input grows with a positive number, that is more often a factor (a mass) than something to subtract.
    """
    one = np.ones(len(change))
    shapes = {"constant": one, "size": law.mean} | dict(zip(law.inputs, law.grid.T))
    alike = {name: _cosine(change, shape) for name, shape in shapes.items()}
    best = max(alike, key=lambda name: alike[name] ** 2)
    as_good = {name for name, cosine in alike.items() if cosine**2 > alike[best] ** 2 - NEARLY}
    if "constant" in as_good:
        best = "constant"
    elif "size" in as_good and log_sign * alike["size"] > 0:
        best = "size"
    elif best == "size" and log_sign == 0:
        best = next((name for name in law.inputs if name in as_good), best)
    sign = float(np.sign(alike[best]))
    if alike[best] ** 2 > ALIKE:
        words = {"constant": f"a constant in {law.name}", "size": f"the size of {law.name}"}
        text = words.get(best, f"a part of {law.name} in proportion to {_input(best)}")
        return Party(text, "part", law.name, sign, "log" if best == "size" else "plain")
    line = np.stack([one, *law.grid.T], axis=1)
    left = change - line @ np.linalg.lstsq(line, change, rcond=None)[0]
    if np.mean(left**2) < (1 - ALIKE) * np.mean(change**2):
        return Party(f"a straight line in {law.name}", "part", law.name, sign, "plain")
    return Party(f"a part of {law.name}", "part", law.name, sign)


def _on_one_scale(parties: list[Party]) -> list[Party]:
    """What adds to a law adds as it is, also where it was sampled as its logarithm."""
    if not any(party.kind == "part" and party.scale == "plain" for party in parties):
        return parties
    return [party if party.kind == "part" else party._replace(scale="plain") for party in parties]


def _input(name: str) -> str:
    return "its input" if name == "input" else name


def _cosine(one: np.ndarray, other: np.ndarray) -> float:
    size = np.linalg.norm(one) * np.linalg.norm(other)
    return float(one @ other / size) if size > 0 else 0.0
