"""Sampled laws as Python and C: mean and draws say what the law says, every draw keeps every promise."""

import ctypes
import dataclasses
import runpy
import shutil
import subprocess

import equinox as eqx
import jax
import numpy as np
import pandas as pd
import pytest
from smooth import drawn

from closura.laws import Law, LawError, Support, export_law
from closura.laws.export._formula import DRAWS

STRUCTURES = [
    {},
    {"odd": True},
    {"even": True, "positive": True},
    {"dissipative": True},
    {"dissipative": True, "increasing": True},
    {"at": {0.0: 1.0, 2.0: 3.0}},
]
LONG = [
    {"even": True},
    {"zero_at_origin": True},
    {"positive": True},
    {"increasing": True},
    {"decreasing": True},
    {"convex": True},
    {"concave": True},
    {"dissipative": True, "odd": True},
    {"increasing": True, "odd": True},
    {"even": True, "convex": True},
    {"positive": True, "decreasing": True},
    {"at": {1.5: 2.0}, "positive": True},
]
EVERY = [*STRUCTURES, *(pytest.param(structure, marks=pytest.mark.nightly) for structure in LONG)]
X = np.sort(np.concatenate([np.random.default_rng(1).uniform(-12, 14, 10_000), [0.0]]))
EVEN = np.linspace(-12.0, 14.0, 261)
SUPPORT = Support(np.array([-2.0]), np.array([4.0]), np.array([1, 1, 0, 1, 1, 1], bool))


def export(law, path, **options):
    about = {"problem": "springs", "converged": True, "overwrite": False}
    return export_law(law, path, pd.DataFrame, **about | options)


def broken(structure, f):
    """Promises that a function of arrays, (draw, point), does not keep."""
    value, mirrored = f(X), f(-X)
    rounding = 1e-13 * np.abs(value).max()
    rise, bend = np.diff(value), np.diff(f(EVEN), 2)
    holds = {
        "odd": np.array_equal(mirrored, -value),
        "even": np.array_equal(mirrored, value),
        "zero_at_origin": not np.any(f(np.zeros(1))),
        "positive": np.all(value > 0),
        "increasing": np.all(rise >= -rounding),
        "decreasing": np.all(rise <= rounding),
        "convex": np.all(bend >= -4 * rounding),
        "concave": np.all(bend <= 4 * rounding),
        "dissipative": np.all(X * value >= 0),
        "at": all(np.allclose(f(np.array([at])), to, rtol=1e-5) for at, to in structure.get("at", {}).items()),
    }
    return [name for name in structure if not holds[name]]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A law of 70 draws with a structure, its file in Python as a module, and its file in C; each made once."""
    folder, made = tmp_path_factory.mktemp("exported"), {}

    def find(structure):
        if str(structure) not in made:
            name = f"law_{len(made)}"
            law = dataclasses.replace(drawn(Law(**structure), 70, name=name), support=SUPPORT)
            python, c = (export(law, folder / f"{name}{ending}") for ending in (".py", ".c"))
            made[str(structure)] = law, runpy.run_path(str(python)), c
        return made[str(structure)]

    return find


def c_functions(path, name):
    cc = shutil.which("cc")
    if cc is None:
        pytest.skip("there is no C compiler `cc` here")
    strict = ["-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic", "-shared", "-fPIC"]
    library = path.with_suffix(".so")
    done = subprocess.run([cc, *strict, path, "-o", library, "-lm"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    compiled = ctypes.CDLL(str(library))
    count = ctypes.c_int.in_dll(compiled, f"f_{name}_count").value
    f, draws, supported = (compiled[f"f_{name}{end}"] for end in ("", "_draws", "_supported"))
    f.restype, f.argtypes, supported.argtypes = ctypes.c_double, [ctypes.c_double], [ctypes.c_double]
    draws.argtypes, draws.restype = [ctypes.c_double, ctypes.POINTER(ctypes.c_double)], None

    def every(x):
        out = np.empty((len(x), count))
        for row, xi in zip(out, x.tolist()):
            draws(xi, row.ctypes.data_as(ctypes.POINTER(ctypes.c_double)))
        return out.T

    return np.vectorize(f, otypes=[float]), every, np.vectorize(lambda x: bool(supported(x)), otypes=[bool])


@pytest.mark.parametrize("structure", EVERY, ids=str)
def test_python_says_what_the_law_says_and_keeps_its_promises_in_every_draw(exported, structure):
    law, module, _ = exported(structure)
    x = EVEN[(EVEN > -3) & (EVEN < 5)]
    each = dataclasses.replace(law, law=law.some(DRAWS)).draws(x)
    size = np.abs(each).max()
    np.testing.assert_allclose(module["f_draws"](x), each, atol=1e-5 * size)
    mean = law(x) if law.law.spec.structure.linear else each.mean(axis=0)
    np.testing.assert_allclose(module["f"](x, warn=False), mean, atol=1e-5 * size)
    assert module["f_draws"](x[:4].reshape(2, 2)).shape == (DRAWS, 2, 2)
    assert module["f_draws"](1.0).shape == (DRAWS,)
    np.testing.assert_array_equal(module["supported"](x), law.supported(x))
    assert not broken(structure, module["f_draws"])
    assert not broken(structure, lambda x: module["f"](x, warn=False)[None])


@pytest.mark.parametrize("structure", EVERY, ids=str)
def test_c_says_what_python_says_and_keeps_its_promises(exported, structure):
    law, module, path = exported(structure)
    f, every, supported = c_functions(path, law.name)
    x = X[::20]
    size = np.abs(module["f_draws"](x)).max()
    np.testing.assert_allclose(every(x), module["f_draws"](x), rtol=1e-12, atol=1e-13 * size)
    np.testing.assert_allclose(f(x), module["f"](x, warn=False), rtol=1e-12, atol=1e-13 * size)
    np.testing.assert_array_equal(supported(x), law.supported(x))
    assert not broken(structure, every)
    with np.errstate(invalid="ignore"):
        assert np.isnan(f(np.nan))


def test_the_file_says_what_it_holds(exported, tmp_path):
    _, module, _ = exported({"even": True, "positive": True})
    assert "exact: even, positive." in module["__doc__"]
    assert (
        "50 of the 70 posterior draws of the law are here, evenly picked; f is the mean over these" in module["__doc__"]
    )
    law, module, _ = exported({})
    for part in ("f is the posterior mean", "v from -2 to 4", "not in all of that; supported() tells"):
        assert part in module["__doc__"]
    nowhere = dataclasses.replace(law, support=dataclasses.replace(SUPPORT, cells=np.zeros(1, bool)))
    module = runpy.run_path(str(export(nowhere, tmp_path / "law.py")))
    assert "Data supported it nowhere: it is what was assumed before data." in module["__doc__"]
    assert not np.any(module["supported"](X))


def test_laws_that_are_worth_nothing(exported, tmp_path):
    law, _, _ = exported({})
    lost = jax.tree.map(lambda w: w * np.nan if eqx.is_array(w) else w, law.law)
    with pytest.raises(LawError, match="weights that are not finite: learning diverged; fit again"):
        export(dataclasses.replace(law, law=lost), tmp_path / "law.py")
