"""Sampled laws as a fit could leave them: draws of the prior, and of a posterior that is known exactly."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from closura.laws import FittedLaw, Law, Range, Scaling, build, fitted

RANGE = Range(jnp.array([-3.0]), jnp.array([5.0]))
SCALING = Scaling(jnp.array([1.0]), jnp.array([2.0]), jnp.asarray(4.0))

DETAIL = -5.0  # log r^2: details of a twelfth of a law


def drawn(
    spec: Law,
    count: int,
    *,
    log_size: float = 0.0,
    detail: float = DETAIL,
    spread: float = 0.0,
    seed: int = 0,
    name: str = "f",
) -> FittedLaw:
    """Draws of the prior, at sizes around `log_size`, and around `detail` where laws have detail."""
    frame = spec.frame(RANGE, SCALING)
    law = build({name: spec}, jr.key(0), {name: SCALING}, (count,))[name]
    random = np.random.default_rng(seed)
    around = np.array([log_size, detail][: law.log_size.shape[-1]])
    law = law.with_size(jnp.asarray(around + spread * random.normal(size=law.log_size.shape), float))
    law = eqx.filter_vmap(lambda law, key: law.redrawn(key, frame))(law, jr.split(jr.key(seed), count))
    return FittedLaw(name, law, ("v",), None, frame)


def observed(
    spec: Law, count: int, x: np.ndarray, sigma: float, log_size: float = 0.0
) -> tuple[FittedLaw, np.ndarray, np.ndarray]:
    """Draws of the posterior given f(x) = sin(x) + noise, of a law that is linear in its coordinates; and, exactly, the
    covariance of its coordinates and what they are multiplied by at x."""
    law = drawn(spec, count, log_size=log_size)
    one = jax.tree.map(lambda a: a[0], law.law)
    basis = np.asarray(
        jax.jacfwd(lambda a: jax.vmap(one.with_weights(a).prepare(law.frame))(jnp.asarray(x)))(one.weights), float
    )
    precision = np.asarray(law.frame.precision(one.log_size), float)
    covariance = np.linalg.inv(np.diag(precision) + basis.T @ basis / sigma**2)
    mean = covariance @ basis.T @ np.sin(x) / sigma**2
    weights = np.random.default_rng(1).multivariate_normal(mean, covariance, count)
    posterior = law.law.with_weights(jnp.asarray(weights, one.weights.dtype))
    return fitted("f", posterior, ("v",), x[:, None], law.frame), covariance, basis
