"""What changes with the iteration: who learns when, and how fast."""

import numpy as np
import pytest
from fields import CHANNEL, TRAY

import closura as cl
from closura.learning import Settings, SettingsError, make_settings
from closura.learning._schedule import learning_rates

NOW = np.arange(1000) / 1000


def test_the_surrogate_begins_and_ends_alone():
    settings = Settings(
        forward="pinn", surrogate_warmup=0.2, surrogate_finetune=0.3, learning_rate=1e-2, surrogate_rate=1e-3
    )
    law, surrogate = learning_rates(settings, NOW, surrogate=True)
    assert np.flatnonzero(law)[[0, -1]].tolist() == [200, 699]
    assert law[200] == pytest.approx(1e-2)
    assert law[699] == pytest.approx(2e-4, rel=0.05)
    assert np.all(np.diff(law[200:700]) < 0)
    assert surrogate[0] == pytest.approx(1e-3)
    assert surrogate[-1] == pytest.approx(2e-5, rel=0.05)


def test_without_a_surrogate_the_law_learns_all_the_time():
    law, _ = learning_rates(Settings(surrogate_warmup=0.2, surrogate_finetune=0.3), NOW, surrogate=False)
    assert np.all(law > 0)


def test_something_is_left_for_the_law():
    with pytest.raises(
        SettingsError, match=r"surrogate_warmup=0.6 and surrogate_finetune=0.5 leave the law nothing of learning; lower"
    ):
        make_settings({"surrogate_warmup": 0.6, "surrogate_finetune": 0.5})


def test_what_chains_see_unless_said():
    assert make_settings({}).forward == make_settings({}, CHANNEL).forward == "solver"
    assert make_settings({}, TRAY).forward == "basis"
    assert make_settings({"forward": "solver"}, TRAY).chains == make_settings({}, CHANNEL).chains


@pytest.mark.parametrize(("old", "new", "value"), [("warmup", "tempering", 0.2), ("settle", "tune", 40), ("exact", "delayed_acceptance", True), ("polish", "surrogate_finetune", 0.1), ("head_start", "surrogate_warmup", 0.1), ("newcomers", "replay_prior_draws", 3)])  # fmt: skip
def test_names_of_version_0_1_work_with_a_note(old, new, value):
    with pytest.warns(FutureWarning, match=f"setting {old} is called {new} now"):
        assert getattr(make_settings({old: value}), new) == value
    with pytest.raises(SettingsError, match=f"{old} is called {new} now, and both are given; drop {old}"):
        make_settings({old: value, new: value})


def test_as_many_chains_as_the_parameters_need():
    names = [f"p{i}" for i in range(7)]
    many = cl.ODE(
        lambda t, state, p, f: (-f(state[0]) - sum(p),),
        state=("u",),
        parameters={name: cl.Real() for name in names},
        initial=lambda p: (p.p0,),
        span=(0.0, 1.0),
        dt=0.1,
        closure=cl.Law(),
        observed="u",
        sigma=0.1,
    )
    settings = make_settings({}, many)
    assert settings.chains == 64
    settings.check_size(20, len(names))
    with pytest.raises(SettingsError, match="raise chains to 64"):
        make_settings({"chains": 32}, many).check_size(20, len(names))
