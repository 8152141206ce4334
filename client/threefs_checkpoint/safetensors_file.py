"""safetensors files on a cluster as arrays of numpy.

    from threefs_checkpoint import safetensors_file

    safetensors_file.save_file(fs, "/models/a.safetensors", {"w": array})
    arrays = safetensors_file.load_file(fs, "/models/a.safetensors")

bfloat16 and 8-bit floats need the library ml_dtypes.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from threefs_checkpoint import read_once, safetensors_format, tensor_file
from threefs_checkpoint.dtypes import bytes_of
from threefs_checkpoint.filesystem_protocol import FileSystem
from threefs_checkpoint.group import Group
from threefs_checkpoint.loading import Arrays, LoadReport
from threefs_checkpoint.safetensors_format import TensorInfo
from threefs_checkpoint.tensor_file import TensorFile

__all__ = ["SafetensorsFile", "load_file", "load_once", "save_file"]


class SafetensorsFile(TensorFile[NDArray[Any]]):
    """The tensors of a file as arrays, each read when it is asked for."""

    def empty(self, name: str, info: TensorInfo, shape: tuple[int, ...]) -> tuple[NDArray[Any], NDArray[Any]]:
        array: NDArray[Any] = np.empty(shape, safetensors_format.numpy_dtype(info.dtype))
        return array, array


def load_file(fs: FileSystem, path: str, names: Iterable[str] | None = None) -> Arrays:
    """The tensors of these names, or all. Raises NotFound, Corrupt, NotSupported."""
    with SafetensorsFile(fs, path) as file:
        return file.get_tensors(names)


def load_once(fs: FileSystem, path: str, group: Group, report: LoadReport | None = None) -> Arrays:
    """All tensors, on every rank of the group; each byte is read from storage by one of them. Every rank calls it.

    Raises what `load_file` raises, and Unavailable where another rank has failed.
    """
    return read_once.load(partial(SafetensorsFile, fs, path), group, report)


def save_file(
    fs: FileSystem,
    path: str,
    arrays: Mapping[str, NDArray[Any]],
    metadata: Mapping[str, str] | None = None,
    *,
    chunk_bytes: int = 0,
) -> int:
    """Write a file with these arrays. It appears whole, also in place of another one. Returns its length in bytes.
    Raises InvalidArgument."""
    described = {
        name: (safetensors_format.dtype_name(name, array.dtype), array.shape) for name, array in arrays.items()
    }

    def contents(name: str) -> list[memoryview]:
        return [bytes_of(np.ascontiguousarray(arrays[name]))]

    return tensor_file.write(fs, path, described, contents, metadata, chunk_bytes)
