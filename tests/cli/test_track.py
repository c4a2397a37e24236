"""Trackers by their options; those of a run are known when it is resumed."""

import pytest

STAMP = "problem: mass-damper\nsystems: 3\n{}about:\n  versions:\n    closura: 0.1.0\n"


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ([], ()),
        (["--tensorboard"], ["tensorboard"]),
        (["--track", "wandb", "--track", "mlflow", "--tensorboard"], ["tensorboard", "wandb", "mlflow"]),
        (["--tensorboard", "--track", "tensorboard"], ["tensorboard"]),
        (["--set", "track=wandb"], ["wandb"]),
        (["--set", "track=[wandb, mlflow]"], ["wandb", "mlflow"]),
        (["--set", "track=wandb", "--track", "none"], ()),
    ],
)
def test_options(closura, fitted, problem, table, words, names):
    closura("fit", problem, "--data", table, *words)
    options = fitted[0][2]
    assert options["track"] == names
    assert options["context"].get("track", []) == list(names)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ([], ["wandb"]),
        (["--tensorboard"], ["tensorboard"]),
        (["--track", "mlflow"], ["mlflow"]),
        (["--track=none"], ()),
    ],
)
def test_a_resumed_run_is_followed_as_before(closura, fitted, tmp_path, words, names):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text(STAMP.format("track:\n- wandb\n"))
    (tmp_path / "run" / "checkpoint.npz").touch()
    closura("resume", "run", *words)
    assert fitted[0][2]["track"] == names


@pytest.mark.parametrize(
    ("words", "package"),
    [(["--tensorboard"], "tensorboardX"), (["--track", "wandb"], "wandb"), (["--track", "mlflow"], "mlflow")],
)
def test_what_is_not_installed(refused, uninstalled, problem, table, words, package):
    uninstalled(package)
    name = words[-1].removeprefix("--")
    says = (
        f"{name} needs the package {package}, which is not installed; pip install 'closura[{name}]', or leave it out\n"
    )
    refused(problem, "--data", table, *words, says=(says,))


def test_unknown(refused, problem, table):
    says = "unknown tracker 'wandbb'; did you mean 'wandb'? trackers are tensorboard, wandb, mlflow"
    refused(problem, "--data", table, "--track", "wandbb", says=(says,))
    refused(problem, "--data", table, "--set", "track=3", says=("setting track=3: input should be a valid list",))
