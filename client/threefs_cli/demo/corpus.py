"""Real input for the demonstration: the source tree of Python's standard library."""

import os
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_LEFT_OUT = {"__pycache__", "site-packages", "dist-packages", "lib-dynload"}
SAMPLE_TOKENS = 2048
_END_OF_FILE = 256  # the token behind each file; the others are its bytes


def standard_library() -> dict[str, bytes]:
    """Path below the library's directory -> content, of every file that is not made by an installation."""
    top = Path(sysconfig.get_paths()["stdlib"])
    found = {}
    for directory, below, names in os.walk(top):
        below[:] = sorted(name for name in below if name not in _LEFT_OUT and not name.startswith("config-"))
        for name in sorted(names):
            path = Path(directory) / name
            if path.is_file() and not path.is_symlink():
                found[path.relative_to(top).as_posix()] = path.read_bytes()
    return found


def tokens(files: Mapping[str, bytes]) -> NDArray[np.uint16]:
    """All files as one row of tokens, cut so that it is a whole number of samples; a sample a row of the result."""
    parts = []
    for content in files.values():
        parts += [np.frombuffer(content, np.uint8).astype(np.uint16), np.array([_END_OF_FILE], np.uint16)]
    row = np.concatenate(parts) if parts else np.empty(0, np.uint16)
    return row[: len(row) // SAMPLE_TOKENS * SAMPLE_TOKENS].reshape(-1, SAMPLE_TOKENS)
