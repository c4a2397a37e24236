"""What a run leaves behind: result, folder, checkpoint."""

from ._checkpoint import find as find_checkpoint, forget as forget, restore as restore, store as store
from ._collect import check_names as check_names, collect as collect
from ._folder import (
    FolderError as FolderError,
    check as check,
    claim as claim,
    holds_run as holds_run,
    release as release,
    save as save,
    write_whole as write_whole,
)
from ._load import LoadError as LoadError, export_from as export_from, load as load, load_closures as load_closures
from ._result import Result as Result
