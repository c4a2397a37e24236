"""What a run leaves behind: result, folder, checkpoint."""

from ._checkpoint import find as find_checkpoint
from ._checkpoint import forget as forget
from ._checkpoint import restore as restore
from ._checkpoint import store as store
from ._collect import check_names as check_names
from ._collect import collect as collect
from ._folder import FolderError as FolderError
from ._folder import check as check
from ._folder import claim as claim
from ._folder import holds_run as holds_run
from ._folder import release as release
from ._folder import save as save
from ._folder import write_whole as write_whole
from ._laws_file import export_from as export_from
from ._laws_file import load_closures as load_closures
from ._load import LoadError as LoadError
from ._load import load as load
from ._result import Result as Result
