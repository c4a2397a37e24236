"""What changes with the iteration: who learns when, and how fast."""

import numpy as np
import pytest
from fields import CHANNEL, TRAY

from closura.learning import Settings, SettingsError, make_settings
from closura.learning._schedule import learning_rates

NOW = np.arange(1000) / 1000


def test_the_surrogate_begins_and_ends_alone():
    settings = Settings(forward="pinn", head_start=0.2, polish=0.3, learning_rate=1e-2, surrogate_rate=1e-3)
    law, surrogate = learning_rates(settings, NOW, surrogate=True)
    assert np.flatnonzero(law)[[0, -1]].tolist() == [200, 699]
    assert law[200] == pytest.approx(1e-2)
    assert law[699] == pytest.approx(2e-4, rel=0.05)
    assert np.all(np.diff(law[200:700]) < 0)
    assert surrogate[0] == pytest.approx(1e-3)
    assert surrogate[-1] == pytest.approx(2e-5, rel=0.05)


def test_without_a_surrogate_the_law_learns_all_the_time():
    law, _ = learning_rates(Settings(head_start=0.2, polish=0.3), NOW, surrogate=False)
    assert np.all(law > 0)


def test_something_is_left_for_the_law():
    with pytest.raises(SettingsError, match=r"head_start=0.6 and polish=0.5 leave the law nothing of learning; lower"):
        make_settings({"head_start": 0.6, "polish": 0.5})


def test_what_chains_see_unless_said():
    assert make_settings({}).forward == make_settings({}, CHANNEL).forward == "solver"
    assert make_settings({}, TRAY).forward == "basis"
    assert make_settings({"forward": "solver"}, TRAY).chains == make_settings({}, CHANNEL).chains
