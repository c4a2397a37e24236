"""The cache of compiled programs has its place, and does not grow for ever."""

import os
from pathlib import Path

import jax
from compiled import place, prune


def test_its_place():
    assert place({}) == Path.home() / ".cache" / "closura" / "compiled"
    assert place({"XDG_CACHE_HOME": "/elsewhere"}) == Path("/elsewhere/closura/compiled")
    assert place({"XDG_CACHE_HOME": "/elsewhere", "JAX_COMPILATION_CACHE_DIR": "/there"}) == Path("/there")
    assert jax.config.jax_compilation_cache_dir == str(place())


def test_the_oldest_programs_go_first(tmp_path):
    for age, name in enumerate("abcd"):
        (tmp_path / name).write_bytes(b"x" * 100)
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    prune(tmp_path, 400)
    assert len(list(tmp_path.iterdir())) == 4
    prune(tmp_path, 250)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
    prune(tmp_path / "absent")
