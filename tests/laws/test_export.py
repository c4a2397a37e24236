"""Laws as Python and C: the files say what the law says, keep its promises, and tell where data supported it."""

import ctypes
import dataclasses
import runpy
import shutil
import subprocess
import sys
import warnings
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from laws import LAWS, STRUCTURES, law_of, points, visits

from closura.laws import FittedLaw, LawError, export_law, support_of

VARIANTS: dict[str, dict] = {
    "-".join([*flags, str(inputs)]): dict.fromkeys(flags, True) | {"inputs": inputs} for inputs, flags in STRUCTURES
}
VARIANTS |= {f"plain-{n}": {"inputs": n} for n in (1, 2, 3)}
VARIANTS |= {name: {"activation": name, "odd": True} for name in ("silu", "tanh", "gelu")}
VARIANTS |= {"shallow": {"depth": 1}, "wide": {"width": 64, "depth": 4, "size": 0.1}}
VARIANTS |= {f"increasing-{n}": {"increasing": True, "inputs": n} for n in (1, 2, 3)}
NAMES = {variant: f"law_{i}" for i, variant in enumerate(VARIANTS)}
# Only the standard library and NumPy can be imported here.
ALONE = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {*sys.stdlib_module_names, "numpy"} and not name.startswith("law_"):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Block())
sys.path.insert(0, ".")
import importlib
import numpy as np

x, out = np.load("points.npz"), {}
for name in sys.argv[1:]:
    law = importlib.import_module(name)
    at = x[str(len(law.SUPPORT))].T
    out[name], out[name + "_supported"] = law.f(*at, warn=False), law.supported(*at)
assert not {"jax", "closura"} & set(sys.modules)
np.savez("values.npz", **out)
"""


def export(law: FittedLaw, path, **options):
    return export_law(
        law, path, pd.DataFrame, **{"problem": "springs", "converged": True, "overwrite": False} | options
    )


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> SimpleNamespace:
    """Every variant in float64, as a law, as the values its Python file gives in a process of its own, and as C."""
    folder = tmp_path_factory.mktemp("exported")
    with jax.enable_x64(True):
        laws = {variant: law_of(NAMES[variant], **options) for variant, options in VARIANTS.items()}
    for law, ending in ((law, ending) for law in laws.values() for ending in (".py", ".c")):
        export(law, folder / f"{law.name}{ending}")
    np.savez(folder / "points.npz", **{str(n): points(n) for n in (1, 2, 3)})
    alone = [sys.executable, "-c", ALONE, *NAMES.values()]
    done = subprocess.run(alone, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with np.load(folder / "values.npz") as values:
        return SimpleNamespace(folder=folder, laws=laws, python=dict(values))


@pytest.fixture(scope="module")
def compiled(exported) -> ctypes.CDLL:
    """All C files in one library: nothing but the functions of each can be seen from outside."""
    cc = shutil.which("cc")
    if cc is None:
        pytest.skip("there is no C compiler `cc` here")
    strict = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic", "-shared", "-fPIC"]
    files = sorted(path.name for path in exported.folder.glob("*.c"))
    done = subprocess.run(
        [cc, *strict, *files, "-o", "laws.so", "-lm"], cwd=exported.folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(exported.folder / "laws.so"))


def c_values(compiled: ctypes.CDLL, name: str, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    f, supported = compiled[f"f_{name}"], compiled[f"f_{name}_supported"]
    f.restype, f.argtypes, supported.argtypes = ctypes.c_double, *(2 * [[ctypes.c_double] * at.shape[1]])
    rows = at.astype(float).tolist()
    return np.array([f(*row) for row in rows]), np.array([supported(*row) for row in rows], bool)


def deviation(one: np.ndarray, other: np.ndarray, at: np.ndarray) -> float:
    """Relative to the size of the law, within twelve of the origin."""
    near = np.all(np.abs(at) <= 12, axis=1)
    return float(np.abs(one - other)[near].max() / np.abs(other)[near].max())


def single(law: FittedLaw) -> FittedLaw:
    cast = jax.tree.map(lambda w: jnp.asarray(np.asarray(w), jnp.float32) if eqx.is_array(w) else w, law.law)
    return dataclasses.replace(law, law=cast)


@pytest.mark.parametrize("variant", VARIANTS)
def test_python_says_what_the_law_says(exported, variant):
    law, at = exported.laws[variant], points(VARIANTS[variant].get("inputs", 1))
    assert law.double
    assert deviation(exported.python[law.name], law(*at.T), at) < 1e-12
    np.testing.assert_array_equal(exported.python[f"{law.name}_supported"], law.support.contains(at.astype(float)))


@pytest.mark.parametrize("variant", VARIANTS)
def test_python_keeps_every_promise(exported, variant):
    """To the last bit, and whatever else is in the call."""
    at = points(VARIANTS[variant].get("inputs", 1))
    module = runpy.run_path(str(exported.folder / f"{NAMES[variant]}.py"))

    def f(x):
        return module["f"](*np.asarray(x, float).T, warn=False)

    broken = [flag for flag, holds in LAWS.items() if VARIANTS[variant].get(flag) and not holds(f, at)]
    assert not broken
    assert [module["f"](*x, warn=False) for x in at[:5].astype(float)] == f(at)[:5].tolist()


@pytest.mark.parametrize("variant", VARIANTS)
def test_c_says_what_the_law_says_and_keeps_its_promises(exported, compiled, variant):
    law, at = exported.laws[variant], points(VARIANTS[variant].get("inputs", 1))
    value, supported = c_values(compiled, law.name, at)
    assert deviation(value, law(*at.T), at) < 1e-12
    np.testing.assert_array_equal(supported, law.support.contains(at.astype(float)))
    promised = [flag for flag in LAWS if VARIANTS[variant].get(flag)]
    assert all(LAWS[flag](lambda x: c_values(compiled, law.name, x)[0], at) for flag in promised)


@pytest.mark.parametrize("variant", VARIANTS)
def test_laws_learned_in_single_precision(exported, variant):
    """The file of the law as it was learned, in float32, is as close to it as that allows."""
    law, at = single(exported.laws[variant]), points(VARIANTS[variant].get("inputs", 1))
    assert not law.double
    path = export(law, exported.folder / f"single_{law.name}.py")
    value = runpy.run_path(str(path))["f"](*at.T, warn=False)
    assert deviation(value, law(*at.T), at) < 1e-5


# What the files say


def test_the_file_tells_where_data_supported_it(tmp_path):
    law = law_of("f", odd=True, dissipative=True)
    names = {"problem": 'a """ \\ */ name', "converged": False}
    python = runpy.run_path(str(export(law, tmp_path / "law.py", **names)))
    low, high = python["SUPPORT"][0]
    assert (low, high) == pytest.approx(np.quantile(visits(1), [0.005, 0.995]))
    for part in ("The law f(u) of a ''' / * / name", f"u from {low:.6g} to {high:.6g}", "exact: odd, dissipative."):
        assert part in python["__doc__"]
    assert "HAD NOT CONVERGED" in python["__doc__"]
    assert "NOT CONVERGED" not in runpy.run_path(str(export(law, tmp_path / "other.py")))["__doc__"]
    text = export(law, tmp_path / "law.c", **names).read_text()
    for part in (*python["__doc__"].splitlines(), "double f(double x)\n", "int f_supported(double x)\n"):
        assert part in text
    assert f"const double f_support[1][2] = {{{{{low!r}, {high!r}}}}};" in text


def test_python_warns_once_outside(tmp_path):
    law = law_of("f", inputs=2)
    module = runpy.run_path(str(export(law, tmp_path / "law.py")))
    f, supported = module["f"], module["supported"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f(2.5, 0.5), f(0.5, 0.5, warn=False)
    with pytest.warns(UserWarning, match="called where no data supported this law"):
        f(np.array([2.5, 9.0]), 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f(9.0, 9.0)
    # The middle of the ring lies in the box, but nobody was there.
    at = np.array([[2.5, 0.5], [0.5, 0.5], [9.0, 0.5], [np.nan, 0.5]])
    assert supported(*at.T).tolist() == law.support.contains(at).tolist() == [True, False, False, False]
    assert supported(2.5, np.full((2, 3), 0.5)).shape == f(2.5, np.full((2, 3), 0.5)).shape == (2, 3)
    assert isinstance(f(2.5, 0.5), float)


def test_support_holds_what_was_visited():
    for inputs in (1, 2, 3):
        share = support_of(visits(inputs)).contains(visits(inputs)).mean()
        assert 0.99 - 0.01 * inputs - 0.01 < share <= 0.9901
    assert support_of(np.zeros((0, 1))) is None
    alike = support_of(np.full((50, 2), 3.0))
    assert alike.contains(np.array([[3.0, 3.0], [3.0, 3.1]])).tolist() == [True, False]


def test_c_passes_on_what_is_not_a_number(exported, compiled):
    for law in exported.laws.values():
        nowhere = np.full((1, len(law.inputs)), np.nan)
        assert np.isnan(c_values(compiled, law.name, nowhere)[0]).all(), law.law.spec


def test_laws_that_are_worth_nothing(tmp_path):
    good = law_of("f")
    with pytest.raises(LawError, match="never called with finite inputs: no data support it; fit again"):
        export(dataclasses.replace(good, support=None), tmp_path / "law.py")
    lost = jax.tree.map(lambda w: w * np.nan if eqx.is_array(w) else w, good.law)
    with pytest.raises(LawError, match="weights that are not finite: learning diverged; fit again"):
        export(dataclasses.replace(good, law=lost), tmp_path / "law.py")
