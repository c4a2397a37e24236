"""Forecasts, and systems that were not in the fit."""

from ._fleet import Fleet as Fleet, notes_of as notes_of
from ._forecast import check_out as check_out, forecast_view as forecast_view, save_predictions as save_predictions
from ._new_systems import Newcomers as Newcomers
