"""Laws that leave a result and its folder: tables, and files that say the same from both."""

import dataclasses
import json
import runpy
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from laws import law_of, visits

import closura as cl
from closura.cli import _main
from closura.equations import unit_scaling
from closura.laws import FittedLaw, Known, KnownLaw, LawError, Range, build, support_of
from closura.posterior import closure_view
from closura.runs import export_from, save
from closura.runs._load import read_laws

pytestmark = pytest.mark.xdist_group("folder")


@pytest.fixture
def several(result):
    """A result with two learned laws, one of them in double precision, and a known one."""
    with jax.enable_x64(True):
        spring = law_of("spring", inputs=2, zero_at_origin=True)
    known = KnownLaw(Known(jnp.sin))
    laws = [law_of("damping", odd=True), spring, FittedLaw("drive", known, ("t",), support_of(visits(1)))]
    seen = {law.name: visits(len(law.inputs)) for law in laws}
    views = [closure_view(law, seen[law.name], None) for law in laws]
    parts = {**result.view_parts, "closures": views}
    return dataclasses.replace(result, closures={law.name: law for law in laws}, visited=seen, view_parts=parts)


@pytest.mark.nightly
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


def test_a_folder_holds_the_constants_of_every_draw(result, tmp_path):
    """Of a law that every chain has its own of; its formula is the problem's."""
    spec = cl.Known(lambda c, v: c * v, draw=jax.random.normal)
    laws = build({"own": spec}, jax.random.key(0), {"own": unit_scaling(1)}, (6,))
    own, seen = FittedLaw("own", laws["own"], ("v",), support_of(visits(1))), visits(1)
    both = {"own": own, "damping": law_of("damping", odd=True)}
    parts = {**result.view_parts, "closures": [closure_view(law, seen, None) for law in both.values()]}
    result = dataclasses.replace(result, closures=both, visited=dict.fromkeys(both, seen), view_parts=parts)
    save(result, tmp_path / "run")
    assert list(cl.load_closures(tmp_path / "run")) == ["damping"]
    stored, _ = read_laws(tmp_path / "run", {"own": spec})
    assert list(stored) == ["own", "damping"]
    x = np.linspace(-1.0, 2.0, 5)
    assert len(np.unique(own.draws(1.0))) == 6
    np.testing.assert_array_equal(stored["own"].draws(x), own.draws(x))
    np.testing.assert_array_equal(stored["damping"](x), both["damping"](x))
    table = pd.read_csv(tmp_path / "run" / "closure.csv").query("closure == 'own'")
    np.testing.assert_allclose(table["f"], own.draws(table["input"].to_numpy()).mean(axis=0), rtol=1e-5, atol=1e-6)
    for other in (cl.Known(lambda v: v), cl.MLP()):
        assert list(read_laws(tmp_path / "run", {"own": other})[0]) == ["damping"]
    with pytest.raises(LawError, match=r"closure 'own' was given \(Known\)"):
        result.export_closure(tmp_path / "own.py", "own")


def test_a_folder_holds_sharp_laws_and_forms(result, tmp_path):
    """Of a law about a form the form is the problem's."""
    stated = {"around": lambda v, p: p.c * v, "parameters": {"c": cl.Positive(0.5)}}
    specs, seen, laws = {"kinked": cl.Law(kink=0.3), "formed": cl.Law(**stated)}, visits(1), {}
    for name, spec in specs.items():
        law = build({name: spec}, jax.random.key(0), {name: unit_scaling(1)}, (6,))[name]
        weights = np.random.default_rng(0).normal(size=law.weights.shape).astype(np.float32)
        frame = spec.frame(Range(jnp.array([-2.0]), jnp.array([3.0])), unit_scaling(1))
        laws[name] = FittedLaw(name, law.with_weights(jnp.asarray(weights)), ("v",), support_of(seen), frame)
    parts = {**result.view_parts, "closures": [closure_view(law, seen, None) for law in laws.values()]}
    result = dataclasses.replace(result, closures=laws, visited=dict.fromkeys(laws, seen), view_parts=parts)
    save(result, tmp_path / "run")
    assert list(cl.load_closures(tmp_path / "run")) == ["kinked"]
    stored, _ = read_laws(tmp_path / "run", specs)
    x = np.linspace(-1.0, 2.0, 5)
    for name, law in laws.items():
        assert len(np.unique(law.draws(1.0))) == 6
        np.testing.assert_array_equal(stored[name].draws(x), law.draws(x))
    for other in (cl.Known(lambda v: v), cl.MLP(), cl.Law()):
        assert list(read_laws(tmp_path / "run", {"formed": other})[0]) == ["kinked"]
    with pytest.raises(LawError, match="only its problem knows the form"):
        export_from(tmp_path / "run", tmp_path / "formed.py", "formed")


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


def test_there_may_be_no_law(result, tmp_path):
    with pytest.raises(LawError, match="there is no law here: none was learned; state one in the problem"):
        dataclasses.replace(result, closures={}).export_closure(tmp_path / "law.py")


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
