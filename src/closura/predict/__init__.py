"""Forecasts, and systems that were not in the fit."""

from ._files import check_out as check_out, save as save_predictions
from ._fleet import Fleet as Fleet, fleet_of as fleet_of, notes_of as notes_of
from ._new_systems import Newcomers as Newcomers, view_of as forecast_view
