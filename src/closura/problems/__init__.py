"""Problems that ship with closura, each one file a reader can copy."""

from ._built_in import BuiltIn as BuiltIn
from .burgers import burgers as burgers
from .darcy import darcy as darcy
from .mass_damper import mass_damper as mass_damper

BUILT_IN: dict[str, BuiltIn] = {problem.name: problem for problem in (mass_damper, darcy, burgers)}
