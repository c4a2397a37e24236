"""MATLAB files as MATLAB writes them, which scipy and h5py cannot do alone."""

import struct
from pathlib import Path

import h5py
import numpy as np


def part(kind: int, data: bytes) -> bytes:
    return struct.pack("<II", kind, len(data)) + data + b"\0" * (-len(data) % 8)


def object_5(name: str, kind: str) -> bytes:
    """A file of version 5 with one object of a MATLAB class: its content is kept elsewhere."""
    words = b"".join(part(1, word.encode()) for word in (name, "MCOS", kind))
    flags, shape = part(6, struct.pack("<II", 13, 0)), part(5, struct.pack("<II", 2, 1))
    content = part(14, flags + shape + part(1, b"") + part(6, struct.pack("<II", 0xDD000000, 1)))
    body = part(14, part(6, struct.pack("<II", 17, 0)) + words + content)
    return b"MATLAB 5.0 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x01IM" + body


def save_7_3(
    path: Path, columns: dict[str, np.ndarray], inside: str = "", objects: dict[str, str] | None = None
) -> None:
    """Version 7.3: object arrays become cells of text, those `inside` a name fields of a struct."""

    def put(group, name: str, data: np.ndarray, kind: str) -> h5py.Dataset:
        item = group.create_dataset(name, data=data)
        item.attrs["MATLAB_class"] = np.bytes_(kind)
        return item

    with h5py.File(path, "w", userblock_size=512) as file:
        cells, group = file.create_group("#refs#"), file.create_group(inside) if inside else file
        if inside:
            group.attrs["MATLAB_class"] = np.bytes_("struct")
        for name, column in columns.items():
            if column.dtype == object:
                letters = [np.array([[ord(letter)] for letter in word], np.uint16) for word in column]
                places = [put(cells, f"{name}{at}", word, "char").ref for at, word in enumerate(letters)]
                put(group, name, np.array([places], h5py.ref_dtype), "cell")
            else:
                put(group, name, column[None], "double")
        for name, kind in (objects or {}).items():
            put(file, name, np.zeros((1, 6), np.uint32), kind).attrs["MATLAB_object_decode"] = 3
    with path.open("r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM")
