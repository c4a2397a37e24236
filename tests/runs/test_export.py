"""Laws that leave: Python, C, tables and run folders say what the law says, and where data supported it."""

import ctypes
import dataclasses
import json
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
from laws import LAWS, STRUCTURES, points, random_law

import closura as cl
from closura.cli import _main
from closura.equations import unit_scaling
from closura.posterior._export import export_law
from closura.posterior._law import Law, LawError, closure_view, support_of
from closura.runs import export_from, save

pytestmark = pytest.mark.xdist_group("folder")

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


def visits(inputs: int) -> np.ndarray:
    """Along a line; with two inputs on a ring, the middle of which nobody visited; or anywhere in a ball."""
    random = np.random.default_rng(1)
    around = random.normal(size=(20_000, inputs))
    if inputs == 2:
        around *= (2 + 0.1 * random.normal(size=(20_000, 1))) / np.linalg.norm(around, axis=1, keepdims=True)
    return around + 0.5


def law_of(name: str, inputs: int = 1, **options) -> Law:
    return Law(name, random_law(inputs=inputs, **options), ("u", "v", "w")[:inputs], support_of(visits(inputs)))


def export(law: Law, path, **options):
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


def single(law: Law) -> Law:
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


# From a result, and from its folder


@pytest.fixture
def several(result):
    """A result with two learned laws, one of them in double precision, and a known one."""
    with jax.enable_x64(True):
        spring = law_of("spring", inputs=2, zero_at_origin=True)
    known = cl.Known(jnp.sin).build(jax.random.key(0), unit_scaling(1))
    laws = [law_of("damping", odd=True), spring, Law("drive", known, ("t",), support_of(visits(1)))]
    seen = {law.name: visits(len(law.inputs)) for law in laws}
    views = [closure_view(law, seen[law.name], None) for law in laws]
    parts = {**result.view_parts, "closures": views}
    return dataclasses.replace(result, closures={law.name: law for law in laws}, visited=seen, view_parts=parts)


def test_table(several):
    table = several.closure_table("damping")
    assert list(table.columns) == ["input", "f", "density", "supported"]
    assert len(table) == 200
    law = several.closures["damping"]
    np.testing.assert_allclose(table["f"], law(table["input"].to_numpy()), rtol=1e-5, atol=1e-6)
    inside = table["input"].between(law.support.low[0], law.support.high[0])
    assert inside.sum() < 200
    assert table["supported"].tolist() == inside.tolist()
    step = table["input"].diff().mean()
    assert table["density"].sum() * step == pytest.approx(1.0, abs=0.02)
    both = several.closure_table("spring", points=20)
    assert list(both.columns) == ["input_1", "input_2", "f", "density", "supported"]
    assert len(both) == 400
    assert several.closure_table("drive")["f"].to_numpy() == pytest.approx(
        np.sin(several.closure_table("drive")["input"]), abs=1e-5
    )
    with pytest.raises(ValueError, match="points=1 makes no table; take at least 2"):
        several.closure_table("damping", points=1)


def test_a_folder_holds_its_laws(several, tmp_path):
    save(several, tmp_path / "run")
    (tmp_path / "run" / "config.yaml").unlink()
    laws = cl.load_closures(tmp_path / "run")
    assert list(laws) == ["damping", "spring"]
    for name, law in laws.items():
        before, x = several.closures[name], visits(len(law.inputs)).T
        np.testing.assert_array_equal(law(*x), before(*x))
        assert (law.double, law.inputs, law.law.spec) == (name == "spring", before.inputs, before.law.spec)
        for part in ("low", "high", "cells"):
            np.testing.assert_array_equal(getattr(law.support, part), getattr(before.support, part))
        for ending in (".py", ".c"):
            one = several.export_closure(tmp_path / f"one{ending}", name, overwrite=True)
            other = export_from(tmp_path / "run", tmp_path / f"other{ending}", name, overwrite=True)
            assert one.read_bytes() == other.read_bytes()
    several.export_closure(tmp_path / "law.csv", "damping")
    pd.testing.assert_frame_equal(
        pd.read_csv(tmp_path / "law.csv"), several.closure_table("damping"), check_dtype=False
    )
    with pytest.raises(LawError, match=r"closure 'drive' was given \(Known\)"):
        export_from(tmp_path / "run", tmp_path / "drive.py", "drive")
    stored = pd.read_csv(export_from(tmp_path / "run", tmp_path / "stored.csv", "spring"))
    pd.testing.assert_frame_equal(stored, several.closure_table("spring", points=61), check_dtype=False)


def test_command_line(result, tmp_path, monkeypatch, capsys):
    save(result, tmp_path / "run")
    monkeypatch.chdir(tmp_path)

    def call(*words) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["closura", "export", *words])
        with pytest.raises(SystemExit) as ended:
            _main.main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out + said.err

    assert call("run", "--out", "law.py") == (0, "law.py\n")
    assert runpy.run_path("law.py")["f"](1.0) == pytest.approx(result.closure(1.0))
    assert "NOT CONVERGED" in (tmp_path / "law.py").read_text()
    code, said = call("run", "--out", "law.py", "--closure", "f")
    assert code == 2
    assert said.startswith("closura: law.py exists; choose another name, or replace it with")
    assert call("run", "--out", "law.py", "--closure", "f", "--overwrite")[0] == 0
    assert call("run", "--out", "law.txt") == (
        2,
        "closura: law.txt does not say what to write; end its name in .py, .c or .csv\n",
    )
    code, said = call("nowhere", "--out", "other.py")
    assert code == 2
    assert "nowhere holds no laws (closure.eqx and closure.json); name the folder of a run that has ended" in said


@pytest.mark.parametrize(
    ("path", "name", "says"),
    [
        ("law.onnx", "damping", r"end its name in \.py, \.c or \.csv"),
        ("law.py", None, r"there are 3 closures \(damping, spring, drive\); choose one with name="),
        ("law.py", "dampin", "there is no closure 'dampin'; there is damping, spring, drive"),
        ("law.py", "drive", r"closure 'drive' was given \(Known\), not learned; it is a function you have already"),
        ("none/law.py", "damping", "cannot write .*law.py: No such file or directory; choose another place"),
    ],
)
def test_what_cannot_be_exported(several, tmp_path, path, name, says):
    with pytest.raises(LawError, match=says):
        several.export_closure(tmp_path / path, name)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten_unasked(several, tmp_path):
    (tmp_path / "law.c").write_text("mine")
    with pytest.raises(LawError, match=r"law\.c exists; choose another name, or replace it with overwrite=True"):
        several.export_closure(tmp_path / "law.c", "damping")
    assert (tmp_path / "law.c").read_text() == "mine"
    several.export_closure(tmp_path / "law.c", "damping", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["law.c"]


def test_laws_that_are_worth_nothing(result, tmp_path):
    with pytest.raises(LawError, match="there is no law here: none was learned; state one in the problem"):
        dataclasses.replace(result, closures={}).export_closure(tmp_path / "law.py")
    good = law_of("f")
    with pytest.raises(LawError, match="never called with finite inputs: no data support it; fit again"):
        export(dataclasses.replace(good, support=None), tmp_path / "law.py")
    lost = jax.tree.map(lambda w: w * np.nan if eqx.is_array(w) else w, good.law)
    with pytest.raises(LawError, match="weights that are not finite: learning diverged; fit again"):
        export(dataclasses.replace(good, law=lost), tmp_path / "law.py")


@pytest.mark.parametrize("damage", ["closure.eqx", "closure.json", "another run"])
def test_damaged_folder(several, tmp_path, damage):
    save(several, tmp_path)
    if damage == "another run":
        facts = json.loads((tmp_path / "closure.json").read_text())
        facts["closures"]["damping"]["spec"]["width"] = 9
        (tmp_path / "closure.json").write_text(json.dumps(facts))
    else:
        (tmp_path / damage).write_bytes((tmp_path / damage).read_bytes()[:200])
    with pytest.raises(
        LawError, match=r"cannot be read .*are damaged or not of one run: copy them again, or fit again"
    ):
        cl.load_closures(tmp_path)
