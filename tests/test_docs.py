"""Code on the pages runs, commands on them exist, and what they list is all there is."""

import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
import yaml
from typer.testing import CliRunner

import closura
from closura import MLP, Observations
from closura.cli import _main, _options
from closura.equations import align
from closura.forward import SURROGATES
from closura.learning import Run, Settings, make_settings
from closura.learning._settings import _CURVES, _EVOLUTIONS, _FIELDS
from closura.learning._setup import Log
from closura.problems import mass_damper
from closura.runs import collect
from closura.runs._folder import FILES
from closura.track import JsonLines

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md")), "README.md"]
TINY = {"chains": 16, "groups": 2, "iterations": 4, "tune": 0, "draws": 2, "thin": 1, "extend": 0, "chunk": 2}
COLUMNS = ("iteration", "phase", "seconds", "temperature", *Log._fields)
EXERCISED = set()


def blocks(page, *languages):
    found = re.findall(r"^```(\w*)\n(.*?)^```", (ROOT / page).read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return [text for language, text in found if language in languages]


def exercises(page):
    """Marks the test that runs the Python code of a page."""
    EXERCISED.add(page)
    return lambda test: test


def run(page, **names):
    """The names its code leaves behind, beside those it is given."""
    for block in blocks(page, "python"):
        exec(compile(block, page, "exec"), names)
    return names


def test_all_code_is_run():
    assert {page for page in PAGES if blocks(page, "python")} == EXERCISED, "give new pages a test, and drop old ones"


# Pages ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def result(hardly_optimised):
    small = Settings(chains=32, iterations=20, tune=0, draws=5, extend=0, chunk=10, devices=1)
    problem = mass_damper.problem.with_closure(MLP(width=8, depth=1, dissipative=True))
    return collect(Run(problem, mass_damper.simulate(3, 0)[0], small))


@pytest.fixture
def fleet(result, tmp_path, monkeypatch):
    """A folder with tables of a fleet and a newcomer, where a fit takes no time: it checks what it is given and returns a
    result that was there already."""
    table = result.data.to_frame()
    new = table[table["system"] == "2"].head(2).assign(system="number 21")
    table.to_csv(tmp_path / "fleet.csv", index=False)
    for name in ("new.csv", "new_machine.csv"):
        new.to_csv(tmp_path / name, index=False)

    def fit(problem, data, *, inputs=None, out=None, **settings):
        make_settings(settings, problem)
        given = isinstance(data, Observations)
        align(problem, data if given else closura.read_table(data, axes=problem.axes, inputs=inputs))
        if out is not None:
            result.save(out)
        return result

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(closura, "fit", fit)
    monkeypatch.setattr(closura, "use_cores", lambda: 1)
    return tmp_path


@exercises("docs/index.md")
def test_index():
    assert run("docs/index.md")["problem"].law_input_names() == {"f": ("v",)}


@exercises("docs/fields.md")
@pytest.mark.nightly
def test_fields(fleet):
    plates = {"system": "A", "x": [0.2, 0.5, 0.7], "y": [0.1, 0.2, 0.3], "u": [21.0, 24.0, 22.0], "q": 500.0}
    pd.DataFrame(plates).to_csv("plates.csv", index=False)
    names = run("docs/fields.md")
    for problem in (names["problem"], names["rods"], names["trays"]):
        problem.check_scheme()
    assert names["rods"].law_input_names() == names["trays"].law_input_names() == {"f": ("u",)}
    assert names["trays"].shape == (21, 25, 17)


@exercises("docs/problem.md")
@pytest.mark.usefixtures("hardly_optimised")
@pytest.mark.nightly
def test_problem(monkeypatch):
    fit = closura.fit
    monkeypatch.setattr(closura, "fit", lambda *args, **named: fit(*args, **named, **TINY, progress=False, devices=1))
    names = run("docs/problem.md")
    assert names["result"].posterior["power"].shape == (16, 2, 2)
    assert names["bridges"].law_input_names() == {"damping": ("v",), "spring": ("u",), "wind": ("time",)}


@exercises("docs/custom.md")
@pytest.mark.usefixtures("hardly_optimised")
@pytest.mark.nightly
def test_custom():
    names, times = run("docs/custom.md"), np.linspace(0.5, 4.0, 5)
    rows = [pd.DataFrame({"system": k, "time": times, "u": 2 * np.exp(-0.5 * times) + 0.01 * k}) for k in range(2)]
    small = TINY | {"progress": False, "devices": 1}
    for name, more in (("tanks", {}), ("boxes", {"network": {"width": 8, "depth": 1, "rank": 4}})):
        result = closura.fit(names[name], pd.concat(rows), **small, **more)
        assert np.isfinite(result.posterior["k"].values).all()
        assert len(result.predict([1.0])) == 2


@exercises("docs/extending.md")
@pytest.mark.usefixtures("hardly_optimised")
@pytest.mark.nightly
def test_extending(monkeypatch):
    fit = closura.fit
    monkeypatch.setattr(closura, "fit", lambda *args, **named: fit(*args, **TINY | named, progress=False, devices=1))
    monkeypatch.setitem(SURROGATES, "polynomial", SURROGATES["basis"])  # taken away again after the test
    names = run("docs/extending.md")
    for name in ("walked", "robust", "free", "quick", "closed"):
        assert np.isfinite(names[name].posterior["k"].values).all()
        assert names[name].posterior["k"].shape == (16, 2, 3)
    assert names["walked"].settings["sampler"] == ["random_walk", "theta", "population"]
    assert names["free"].settings["population"] == "AnyCorrelation"
    assert "correlation" in names["free"].posterior


def test_what_extends_closura_can_begin(monkeypatch):
    """The same page up to the first iteration of each fit."""

    def begin(problem, table, **named):
        settings = make_settings(TINY | named | {"devices": 1}, problem)
        return Run(problem, closura.read_table(table, axes=problem.axes), settings)

    monkeypatch.setattr(closura, "fit", begin)
    monkeypatch.setitem(SURROGATES, "polynomial", SURROGATES["basis"])
    names = run("docs/extending.md")
    assert [kernel.name for kernel in names["walked"].setup.sweep] == ["random_walk", "theta", "population"]
    assert isinstance(names["robust"].setup.likelihood.noise, names["Laplace"])
    assert isinstance(names["free"].setup.population, names["AnyCorrelation"])
    assert isinstance(names["quick"].network, names["Polynomial"])
    assert isinstance(names["closed"].setup.exact.forward, names["CoolingSolver"])


@exercises("docs/data.md")
def test_data(fleet):
    dated = pd.read_csv("fleet.csv")
    dated["time"] = pd.Timestamp("2024-01-03") + pd.to_timedelta(dated["time"], unit="h")
    dated.to_excel("fleet.xlsx", sheet_name="2024", index=False)
    assert run("docs/data.md", problem=mass_damper.problem)["data"].systems == ("A",)


@exercises("docs/law.md")
def test_law(fleet, result):
    names = run("docs/law.md", cl=closura, problem=result.problem)
    assert names["law"].f(1.0) > 0


@exercises("docs/results.md")
def test_results(fleet, result):
    (fleet / "runs" / "fleet").mkdir(parents=True)
    entries = {name: np.ones(2, np.float32) for name in COLUMNS} | {"phase": np.array(["learn", "tune"])}
    JsonLines(fleet / "runs" / "fleet" / "history.jsonl").follow([entries])
    names = run("docs/results.md", result=result)
    assert len(names["own"]) == 9
    assert names["odd"].columns.tolist() == names["table"].columns.tolist()


@exercises("docs/predict.md")
@pytest.mark.filterwarnings("ignore:the law f is asked for more")
@pytest.mark.nightly
def test_predict(fleet, result):
    names = run("docs/predict.md", cl=closura, problem=result.problem)
    assert names["forecast"]["system"].unique().tolist() == ["pump 21"]


@exercises("docs/forward.md")
def test_forward(fleet):
    assert run("docs/forward.md")["spring"].steps == 100


@exercises("docs/settings.md")
def test_settings(fleet, result):
    run("docs/settings.md", cl=closura, problem=result.problem)
    (text,) = blocks("docs/settings.md", "yaml")
    Path("run.yaml").write_text(text)
    context, settings = _options.choose(Path("run.yaml"), [], {})
    assert {**context.model_dump(exclude_defaults=True), **settings} == yaml.safe_load(text)


@exercises("README.md")
@pytest.mark.filterwarnings("ignore:the law f is asked for more")
def test_readme(fleet):
    run("README.md")


@exercises("docs/theophylline.md")
@pytest.mark.usefixtures("hardly_optimised")
@pytest.mark.nightly
def test_theophylline(tmp_path, monkeypatch):
    fit = closura.fit
    monkeypatch.setattr(closura, "fit", lambda *args, **named: fit(*args, **named, **TINY, progress=False, devices=1))
    monkeypatch.chdir(tmp_path)
    Path("examples").symlink_to(ROOT / "examples")
    names = run("docs/theophylline.md")
    assert names["result"].posterior["ka"].shape == (16, 2, 12)
    assert Path("law.png").exists()
    # The page shows the problem as it lies in the examples.
    example = (ROOT / "examples" / "theophylline" / "elimination.py").read_text("utf-8")
    assert blocks("docs/theophylline.md", "python")[0] in example


@exercises("docs/start.md")
@pytest.mark.usefixtures("hardly_optimised")
@pytest.mark.nightly
def test_start(fleet, monkeypatch):
    """Step by step as it stands there, but for the size of the fit."""
    monkeypatch.setattr(_main, "_start_jax", lambda *_, **__: None)
    (table,) = (text for text in blocks("docs/start.md", "") if "number 21" in text and text.startswith("system"))
    Path("new.csv").write_text(table)
    small = [part for key, value in TINY.items() for part in ("--set", f"{key}={value}")]
    for line in commands("docs/start.md"):
        words = shlex.split(line)[1:]
        if words[:2] == ["new", "my_field.py"]:
            continue
        done = CliRunner().invoke(_main.app, words + (["--quiet", *small] if words[0] == "fit" else []))
        assert done.exit_code in ((0, 1) if words[0] == "fit" else (0,)), (line, done.output, done.exception)
    assert Path("my_problem-check.png").exists()
    assert Path("runs/first/report.html").exists()
    for folder in ("forecast", "new"):
        assert Path(folder, "predictions.csv").exists()
        assert Path(folder, "forecast.png").exists()
    run("docs/start.md")
    assert Path("law.png").exists()


# Commands -------------------------------------------------------------------------------------------------------------

COMMANDS = typer.main.get_command(_main.app).commands
OPTIONS = {
    name: {opt for parameter in command.params for opt in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}
    for name, command in COMMANDS.items()
}


def commands(page):
    """Lines of shell that call closura, without what is said beside them."""
    lines = [line.strip() for block in blocks(page, "", "sh") for line in block.splitlines()]
    lines = [line.removeprefix(".venv/bin/") for line in lines]
    return [re.split(r"\s{2,}|\s#", line)[0] for line in lines if line.startswith("closura ")]


@pytest.mark.parametrize("page", PAGES)
def test_commands_can_be_given(page):
    for line in commands(page):
        name, *words = shlex.split(line)[1:]
        given = COMMANDS[name].make_context(name, words).params  # parsed, not run
        _options.choose(None, given.get("set_") or [], {})


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_options_in_sentences_exist(page):
    everywhere = set().union(*OPTIONS.values())
    for words in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", (ROOT / page).read_text("utf-8")):
        name = words.removeprefix("closura ").split()[0] if words.startswith("closura ") else None
        assert name in (None, *COMMANDS), words
        options = set(re.findall(r"(?<!\S)--[a-z0-9-]+", words))
        assert options <= (OPTIONS[name] if name else everywhere), words


# What they list -------------------------------------------------------------------------------------------------------


def test_the_folder_is_described():
    """Every file a run may leave has its place in a table, and every column of its history."""
    page = (ROOT / "docs/results.md").read_text()
    files = {name for name in FILES if not name.startswith("figures/")} | {
        "checkpoint.npz",
        "history.jsonl",
        "tensorboard/",
        "figures/",
    }
    assert {name for name in (*files, *COLUMNS) if f"`{name}`" not in page} == set()


def test_every_setting_is_described():
    page = (ROOT / "docs/settings.md").read_text().splitlines()
    for name, field in Settings.model_fields.items():
        default = as_text(field.get_default(call_default_factory=True)) or "none"
        assert f"| `{name}` | {default} | {field.description} |" in page


def test_defaults_by_problem_are_described():
    page = (ROOT / "docs/settings.md").read_text().splitlines()
    for known in (_CURVES, _FIELDS):
        for key in {key for chosen in known.values() for key in chosen}:
            assert f"| `{key}` | " + " | ".join(as_text(known[k].get(key)) for k in FORWARD) + " |" in page
    longer = {"fno-supervised": {"iterations": 1000, "surrogate_warmup": 0.15}}
    for kind in FORWARD:
        assert _EVOLUTIONS[kind] == _FIELDS[kind] | {"learning_rate": 0.01, "tempering": 0.2} | longer.get(kind, {})


def test_how_often_sampling_goes_on_is_what_the_method_says():
    words = {3: "three", 10: "ten"}
    usual, fields = words[Settings().extend], {words[chosen["extend"]] for chosen in _FIELDS.values()}
    assert f"up to {usual} times ({', '.join(fields)} for fields)" in (ROOT / "docs/method.md").read_text()


FORWARD = ("solver", "basis", "fno-supervised", "fno-physics", "pinn")


def as_text(value):
    if isinstance(value, dict):
        return "`{" + ", ".join(f"{k}: {v}" for k, v in value.items()) + "}`" if value else ""
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def test_every_public_name_is_on_the_page():
    public = {name for name in vars(closura) if re.match(r"[A-Za-z]", name)}
    public = {name for name in public if not isinstance(getattr(closura, name), type(re)) and name != "annotations"}
    page = re.findall(r"^::: closura\.(\w+)$", (ROOT / "docs/api.md").read_text(), re.MULTILINE)
    assert sorted(page) == sorted(public)
    assert all(getattr(closura, name).__doc__ for name in public)


def test_pages_can_be_read_where_they_lie():
    """Links between pages, and from the README, lead somewhere also without the site."""
    for page in PAGES:
        prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", (ROOT / page).read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose):
            assert "://" in target or (ROOT / page).parent.joinpath(target).exists(), (page, target)
