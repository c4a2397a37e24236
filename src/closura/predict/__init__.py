"""Forecasts, and systems that were not in the fit."""

from ._files import check_out as check_out
from ._files import save as save_predictions
from ._fleet import Fleet as Fleet
from ._fleet import fleet_of as fleet_of
from ._fleet import notes_of as notes_of
from ._new_systems import Newcomers as Newcomers
from ._new_systems import view_of as forecast_view
