"""Can law and parameters be told apart? From the joint Fisher information at draws from the prior.

The law is moved along simple shapes (a constant, a line, ...), the parameters of every system as they can be. A shape whose
whole effect the parameters can undo is confounded with them: no amount of sampling finds it.
"""

import math
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..laws import Known, KnownLaw, prepare
from ..learning import Run

DEGREE = {1: 4, 2: 2}
LEFT = 0.03  # of the effect of a shape, after parameters have undone what they can: less is confounded
SEEN = 3.0  # an effect in units of the noise, all data together, that matters
HELD = 2.0  # standard deviations of a prior
DRAWS = 4


def confounded(run: Run) -> list[str]:
    """In words, what data cannot tell apart; nothing if they can."""
    theta = run.some_theta(DRAWS)
    parameters, weight = _parameters(run, theta)  # (draw, system, observation, parameter), (draw, system, observation)
    with_laws = (line for name in run.laws for line in _with_law(run, name, theta, parameters, weight))
    return [*_among_parameters(run, parameters), *with_laws]


def _parameters(run: Run, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Derivatives of predictions in the parameters, in units of noise and prior; and one over the noise of each observation."""
    exact, laws = run.setup.exact, run.laws
    spread = np.sqrt(np.asarray(run.setup.population.variance))
    linearise = jax.jit(lambda t: exact.linearise(t, exact.model(prepare(laws, run.state.ranges))))
    prediction, jacobian = (np.asarray(a, float) for a in linearise(jnp.asarray(theta)))
    sigma, prior = run.data.sigma, run.setup.noise
    if prior is not None:  # the scale of the noise is to be inferred: take it as it is believed to be
        sigma = np.where(np.isnan(sigma), np.exp(np.asarray(prior.mean))[run.data.quantity], sigma)
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = np.where(run.data.mask, 1 / exact.noise.unit(prediction, sigma), 0.0)
    return np.nan_to_num(np.moveaxis(jacobian, 0, -1) * weight[..., None]) * spread, weight


def _shapes(inputs: int) -> list[tuple[int, ...]]:
    """Powers of each input."""
    return [p for p in product(range(DEGREE.get(inputs, 1) + 1), repeat=inputs) if sum(p) <= DEGREE.get(inputs, 1)]


def _shape(powers: tuple[int, ...], where: list[Array]) -> Array:
    """A product of Legendre polynomials of numbers from -1 to 1."""
    legendre = [np.polynomial.legendre.leg2poly([0.0] * power + [1.0])[::-1] for power in powers]
    return math.prod((jnp.polyval(jnp.asarray(p), z) for p, z in zip(legendre, where)), start=jnp.ones(()))


def _with_law(run: Run, name: str, theta: np.ndarray, parameters: np.ndarray, weight: np.ndarray) -> list[str]:
    law = run.laws[name]
    if not law.spec.trainable:
        return []
    shapes, exact = _shapes(law.spec.inputs), run.setup.exact
    range_ = run.state.ranges[name]
    low, high, unit = np.asarray(range_.low), np.asarray(range_.high), law.unit(range_)

    def predicted(size: Array) -> Array:
        laws = prepare(run.laws, run.state.ranges)

        def more(*x: Array) -> Array:
            where = [(2 * xi - a - b) / (b - a) for xi, a, b in zip(x, low, high)]
            return sum((c * _shape(p, where) for c, p in zip(size, shapes)), jnp.zeros(()))

        def moved(*x: Array) -> Array:
            return laws[name](*x) + unit * law.spec.structure.perturbation(more, x)

        known = KnownLaw(Known(moved, law.spec.inputs))
        return exact.predict(jnp.asarray(theta), exact.model({**laws, name: known}))

    jacobian = np.asarray(jax.jit(jax.jacfwd(predicted))(jnp.zeros(len(shapes))), float)
    effect = np.nan_to_num(jacobian * weight[..., None])
    undo = _undo(parameters, effect, np.array(run.problem.parameters.shared))
    rest = effect - parameters @ undo
    whole, left = (np.einsum("dkoa,dkob->ab", x, x) / len(theta) for x in (effect, rest))
    return [
        _words(run, name, shapes, direction, undo)
        for direction in _weakest(whole, left)
        if np.sqrt(direction @ whole @ direction) > SEEN and not _held(run, undo @ direction)
    ]


def _undo(parameters: np.ndarray, effect: np.ndarray, shared: np.ndarray) -> np.ndarray:
    """(draw, system, parameter, shape): what of the parameters comes closest to each effect; shared ones move in all systems alike."""
    own, same = parameters[..., ~shared], parameters[..., shared]

    def cleared(x: np.ndarray) -> np.ndarray:
        return x - own @ _closest(own, x)

    def stacked(x: np.ndarray) -> np.ndarray:
        return x.reshape(len(x), x.shape[1] * x.shape[2], x.shape[3])

    undo = np.empty((*parameters.shape[:2], parameters.shape[-1], effect.shape[-1]))
    together = _closest(stacked(cleared(same)), stacked(cleared(effect)))[:, None]
    undo[..., shared, :] = together
    undo[..., ~shared, :] = _closest(own, effect - same @ together)
    return undo


def _closest(columns: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Least squares, with a little of a ridge."""
    inner = np.swapaxes(columns, -1, -2) @ columns
    ridge = 1e-12 + 1e-6 * np.trace(inner, axis1=-2, axis2=-1)[..., None, None]
    return np.linalg.solve(inner + ridge * np.eye(inner.shape[-1]), np.swapaxes(columns, -1, -2) @ target)


def _held(run: Run, shift: np.ndarray) -> bool:
    """Do priors forbid parameters to undo a fifth of this, all together? `shift` (draw, system, parameter) is what undoes
    it, in units of the prior of a system."""
    parameters = run.problem.parameters
    before = parameters.mean_variance if run.settings.hierarchy else parameters.system_variance
    together = np.abs(shift.mean(axis=1)).mean(axis=0) * np.sqrt(np.asarray(run.setup.population.variance) / before)
    return bool(np.any(0.2 * together > HELD))


def _weakest(whole: np.ndarray, left: np.ndarray) -> list[np.ndarray]:
    """Directions of unit length of which hardly anything is left."""
    values, vectors = np.linalg.eigh(whole)
    kept = values > 1e-6 * values.max(initial=1e-30)
    white = vectors[:, kept] / np.sqrt(values[kept])
    shares, ways = np.linalg.eigh(white.T @ left @ white)
    found = (white @ ways[:, shares < LEFT**2]).T
    return [way / np.linalg.norm(way) for way in found]


def _words(run: Run, name: str, shapes: list[tuple[int, ...]], direction: np.ndarray, undo: np.ndarray) -> str:
    inputs = run.problem.law_input_names()[name]
    order = np.argsort(-np.abs(direction))
    main = [shapes[i] for i in order if abs(direction[i]) > 0.5] or [shapes[order[0]]]
    said = " and ".join(list(dict.fromkeys(_called(powers, inputs) for powers in main))[:2])
    moved = np.abs(undo @ direction).mean(axis=(0, 1))
    who = [run.problem.parameters.names[i] for i in np.argsort(-moved) if moved[i] > 0.3 * moved.max()][:3]
    plural = "parameters" if len(who) > 1 else "parameter"
    return (
        f"Of the closure {name!r}, {said} cannot be told from the {plural} {', '.join(who)}: what one adds, the other takes away. "
        f"Fix {'one of them' if len(who) > 1 else 'it'} (a plain number among the parameters) or its typical value (a narrow "
        "prior), or promise a structure of the law that leaves it out."
    )


def _called(powers: tuple[int, ...], inputs: tuple[str, ...]) -> str:
    if not any(powers):
        return "a constant"
    if sum(powers) == 1:
        name = inputs[powers.index(1)]
        return f"a part in proportion to {'its input' if name == 'input' else name}"
    named = [n for n, p in zip(inputs, powers) if p]
    return f"how it bends with {'its input' if named == ['input'] else ', '.join(named)}"


def _among_parameters(run: Run, parameters: np.ndarray) -> list[str]:
    """Combinations of parameters that no system's data say anything of."""
    inner = np.einsum("dkop,dkoq->pq", parameters, parameters) / np.prod(parameters.shape[:2])
    values, vectors = np.linalg.eigh(inner)
    if inner.shape[0] == 1 or values[-1] < SEEN**2:
        return []
    found = []
    for value, way in zip(values, vectors.T):
        if value < min(0.01, LEFT**2 * values[-1]):
            who = [n for n, w in zip(run.problem.parameters.names, way) if abs(w) > 0.3]
            said = f"the parameters {', '.join(who)} cannot be told apart"
            if len(who) == 1:
                said = f"nothing is said of {who[0]}"
            found.append(
                f"By the data of a typical system {said}: its prior will speak. Fix one, or measure something else too."
            )
    return found
