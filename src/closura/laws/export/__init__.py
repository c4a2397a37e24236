"""A learned law as source code: Python with NumPy, or C99."""

from ._export import export_law as export_law
