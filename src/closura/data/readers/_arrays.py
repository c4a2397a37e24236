"""Tables in labelled arrays: xarray, and NetCDF 3 and 4."""

import re
import sys
import warnings
from io import BytesIO
from pathlib import Path

import pandas as pd

from .._long_table import STACKED, DataError, LongTable, Names, table_of_rows


def read_netcdf(path: Path, axes: Names) -> LongTable:
    import xarray as xr

    with path.open("rb") as file:
        old = file.read(3) == b"CDF"
    content = BytesIO(path.read_bytes()) if old else path  # scipy would keep the file open
    complain, why = sys.unraisablehook, ""
    sys.unraisablehook = lambda _: None  # h5netcdf cannot let go of a damaged file in silence
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with xr.open_dataset(content, engine="scipy" if old else "h5netcdf", decode_timedelta=False) as opened:
                data = opened.load()
    except MemoryError:
        raise
    except Exception as error:
        why = str(error) or type(error).__name__
    finally:
        sys.unraisablehook = complain
    if why:
        raise ValueError(why)
    return from_dataset(data, str(path), axes)


def from_dataset(data: object, source: str, axes: Names) -> LongTable:
    """A long table of a Dataset or DataArray: dimensions and coordinates become columns, rows without a value go."""
    import xarray as xr

    if isinstance(data, xr.DataArray):
        if data.name is None:
            raise DataError(f"{source}: the DataArray has no name. Name the quantity: array.rename('u')")
        data = data.to_dataset()
    if not isinstance(data, xr.Dataset):
        raise DataError(f"{source}: it is a {type(data).__name__}. Give a Dataset or a DataArray")
    if not data.data_vars:
        raise DataError(f"{source}: there are no variables in it (groups are not looked into). Give one Dataset")
    notes = []
    place = {str(name): str(name).strip().lower() for name in (*data.dims, *data.variables)}
    for name in [name for name in data.dims if name not in data.variables]:
        if place[str(name)] in axes:
            raise DataError(
                f"{source}: dimension '{name}' has no values. Say where it is with assign_coords({name}=...)"
            )
        if place[str(name)] == "system":
            notes.append(f"systems have no names: numbered 0 to {data.sizes[name] - 1}")
    if "system" not in place.values():
        notes.append("no dimension or coordinate 'system': everything is one system, '1'")
        data = data.assign_coords(system="1")
    about = "|".join(map(re.escape, ("system", *axes, STACKED[0], "sigma")))
    values = [name for name in data.data_vars if not re.fullmatch(f"{about}|sigma_.*", place[str(name)])]
    for name in values:
        lacks = [str(other) for other in data.dims if other not in data[name].dims]
        if lacks:
            notes.append(f"'{name}' does not depend on {', '.join(lacks)}: repeated")
    unnamed = [name for name in data.dims if name not in data.variables and place[str(name)] != "system"]
    frame = data.to_dataframe().reset_index().drop(columns=unnamed)
    most = max((data[name].ndim for name in values), default=0)
    whole = frame[[name for name in values if data[name].ndim == most]]
    frame = frame[whole.notna().any(axis=1).to_numpy()] if most else frame
    return table_of_rows(frame.apply(_decoded).reset_index(drop=True), source, axes, notes)


def _decoded(column: pd.Series) -> pd.Series:
    if column.dtype != object or not column.map(lambda cell: isinstance(cell, bytes)).any():
        return column
    return column.map(lambda cell: cell.decode("utf-8", "replace") if isinstance(cell, bytes) else cell)
