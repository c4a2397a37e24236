"""Runs on fields: every forward model trains and samples, a plate of any shape from table to report."""

import warnings

import equinox as eqx
import numpy as np
import pytest
from fields import PROBLEMS, observed
from sizes import FEW, NETWORKS, TRAINING

import closura as cl
from closura.diagnose import solved_draws
from closura.forward import trainable
from closura.learning import Run
from closura.learning._settings import make_settings, with_laws
from closura.problems import burgers, darcy

pytestmark = pytest.mark.usefixtures("hardly_optimised")

SMALL = FEW | TRAINING
# By day laws are sampled on a channel, by a basis (`test_law_surrogate`).
AT_NIGHT = [("channel", "solver"), ("rock", "solver"), ("tray", "solver")]
AT_NIGHT += [("rock", "fno-physics"), ("channel", "fno-supervised"), ("plate", "pinn")]


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "kind"), AT_NIGHT)
def test_every_forward_model_learns_and_samples(name, kind):
    settings = make_settings({"forward": kind, "network": NETWORKS[kind]} | SMALL)
    run = Run(PROBLEMS[name], observed(name, 3), settings)
    before = np.asarray(run.laws["f"](0.3))
    while not run.finished:
        run.advance()
    assert np.all(np.isfinite(run.theta()))
    assert np.ptp(run.theta(), axis=(0, 1)).min() > 0
    assert float(run.laws["f"](0.3)) != float(before)


@pytest.mark.nightly
def test_an_l_shaped_plate_from_table_to_report(tmp_path):
    table = observed("plate", 3).to_frame()
    settings = {"forward": "basis", "network": NETWORKS["basis"]} | SMALL
    result = cl.fit(PROBLEMS["plate"], table, out=tmp_path / "run", progress=False, **settings)
    assert result.posterior["k"].shape == (16, 4, 3)
    assert result.metrics["surrogate_error_worst"] >= result.metrics["surrogate_error"] > 0
    stored = eqx.tree_deserialise_leaves(
        tmp_path / "run" / "surrogate.eqx", eqx.filter(result.network, trainable(result.network))
    )
    assert eqx.tree_equal(stored, eqx.filter(result.network, trainable(result.network)))
    assert (tmp_path / "run" / "figures" / "fit.png").stat().st_size > 10_000
    assert "<html" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.nightly
def test_a_tray_that_cools_from_table_to_report(tmp_path):
    table = observed("tray", 3).to_frame()
    table.to_csv(tmp_path / "trays.csv", index=False)
    assert table.columns[:4].tolist() == ["system", "time", "x", "y"]
    settings = {"forward": "basis", "network": NETWORKS["basis"]} | SMALL
    result = cl.fit(PROBLEMS["tray"], tmp_path / "trays.csv", out=tmp_path / "run", progress=False, **settings)
    assert result.posterior["d"].shape == (16, 4, 3)
    assert (tmp_path / "run" / "figures" / "fit.png").stat().st_size > 10_000
    assert "<html" in (tmp_path / "run" / "report.html").read_text()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a law of few iterations is asked for more than it has seen
        ahead = cl.load(tmp_path / "run", PROBLEMS["tray"]).predict(times=[0.2, 1.3])
    assert ahead.columns[:5].tolist() == ["system", "time", "x", "y", "quantity"]
    assert len(ahead) == 3 * 2 * 13 * 12
    assert np.isfinite(ahead["mean"]).all()


@pytest.mark.parametrize(("known", "counts"), [(darcy, {60}), (burgers, set(range(50, 101, 10)))])
def test_synthetic_fields_are_as_published(known, counts):
    data, truth = known.simulate(4, 1)
    again, _ = known.simulate(4, 1)
    np.testing.assert_array_equal(data.value, again.value)
    assert set(data.counts.tolist()) <= counts
    assert truth.theta.shape == (4, len(known.problem.parameters))
    grid = {tuple(place) for place in np.round(known.problem.points, 9)}
    assert {tuple(place) for place in np.round(data.place[data.mask], 9)} <= grid
    if known is darcy:
        inside = data.place[data.mask]
        assert np.all((inside > 0) & (inside < 1))
        assert len({tuple(place.ravel()) for place in data.place}) == 4, "every system has places of its own"
    else:
        assert len(np.unique(data.place[..., 1])) == 10


def test_a_table_of_another_shape_says_so():
    table = observed("rock", 1).to_frame().rename(columns={"y": "time"})
    with pytest.raises(cl.DataError, match=r"no column 'y'"):
        cl.fit(PROBLEMS["rock"], table, progress=False)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["channel", "rock"])
def test_laws_are_sampled_on_fields(name):
    """Every chain with a law of its own, by the solver, where somebody asks for it; by a basis see `test_law_surrogate`."""
    settings = make_settings(
        FEW | {"iterations": 12, "newton_every": 2, "forward": "solver", "law_kind": "sampled"}, PROBLEMS[name]
    )
    run = Run(PROBLEMS[name], observed(name, 3), settings)
    while not run.finished:
        run.advance()
    law = run.kept.law["f"].coordinates
    assert np.isfinite(law).all()
    assert np.ptp(law, axis=(0, 1)).max() > 0
    assert np.ptp(run.theta(), axis=(0, 1)).min() > 0


@pytest.mark.nightly
def test_a_check_of_a_field_whose_law_is_sampled():
    said = cl.check(PROBLEMS["rock"], observed("rock", 3), forward="solver", law_kind="sampled", **FEW)
    assert "about" in str(said)


@pytest.mark.parametrize("kind", ["fno-supervised", "pinn"])
def test_other_surrogates_take_no_sampled_laws_and_say_so(kind):
    with pytest.raises(
        ValueError, match=f"^forward='{kind}' knows laws as networks only; use forward='solver' to sample"
    ):
        make_settings({"forward": kind, "law_kind": "sampled"}, PROBLEMS["rock"])


def test_the_published_sampler_takes_none_either():
    with pytest.raises(ValueError, match=r"^blocks='joint', the published sampler, knows .* only; use blocks='system'"):
        make_settings({"blocks": "joint", "law_kind": "sampled"}, PROBLEMS["rock"])


@pytest.mark.parametrize(("known", "said"), [(darcy, {}), (burgers, {"forward": "basis", "law_kind": "sampled"})])
def test_laws_of_fields_are_sampled_on_a_basis(known, said):
    """Of a field that does not change in time where nobody says otherwise, of another where it is asked for."""
    usual = make_settings(said, known.problem)
    assert usual.forward == "basis"
    assert all(spec.sampled for spec in with_laws(known.problem, usual).closures.values())
    for said in ({"forward": "fno-supervised"}, {"forward": "pinn"}, {"law_kind": "network"}, {"forward": "solver"}):
        settings = make_settings(said, known.problem)
        assert not any(spec.sampled for spec in with_laws(known.problem, settings).closures.values())
    assert make_settings({}, known.problem.with_closure(cl.MLP())).forward == "solver"


def test_draws_without_a_solution_are_stood_in_for_where_they_are_few():
    found = np.arange(20.0)[:, None]
    found[7] = np.nan
    np.testing.assert_array_equal(solved_draws(found)[6:9, 0], [6.0, 6.0, 8.0])
    found[:10] = np.nan
    assert np.isnan(solved_draws(found)[3, 0]), "so many are to be noticed"
