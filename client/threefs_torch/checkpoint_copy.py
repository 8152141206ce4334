"""Copies a checkpoint to a directory of torch.distributed.checkpoint on this machine, and such a directory to a
checkpoint. Neither runs code that a file contains."""

import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from numpy.typing import NDArray
from threefs_checkpoint import loading
from threefs_checkpoint.checkpoint import save
from threefs_checkpoint.dtypes import ELEMENT_TYPES, ElementType
from threefs_checkpoint.filesystem_protocol import FileSystem
from threefs_checkpoint.index import Index
from threefs_checkpoint.job_directory import read_index
from threefs_checkpoint.state import Deferred
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, TensorStorageMetadata

from threefs.env.random import RANDOM
from threefs.errors import AlreadyExists, Corrupt, Internal, InvalidArgument, NotFound, NotSupported, ThreefsError
from threefs_torch import pickled_metadata
from threefs_torch.tensor_bytes import DTYPES, dtype_name

_TOKEN_BYTES = 8


def export(fs: FileSystem, path: str, directory: Path, names: Sequence[str] | None = None) -> int:
    """Write the tensors of a checkpoint, or those of these names, to the new `directory`, which appears when it is
    whole. Returns their bytes. One tensor at a time is in memory. Raises NotFound, Corrupt, AlreadyExists, Internal."""
    index = read_index(fs, path)
    wanted = loading.wanted_of(index, names)
    if os.path.lexists(directory):
        raise AlreadyExists(f"{directory} is there already; remove it, or choose another path")

    def load(name: str) -> torch.Tensor:
        (array,) = loading.load(fs, path, index, {name: wanted[name]}).values()
        return torch.from_numpy(array).view(DTYPES[_element_of(index, name)])

    described = {
        name: torch.empty(part.shape, dtype=DTYPES[_element_of(index, name)], device="meta")
        for name, part in wanted.items()
    }
    unfinished = directory.with_name(f"{directory.name}.unfinished-{RANDOM.token(_TOKEN_BYTES).hex()}")
    try:
        with _alone(), _own_errors(directory, Internal):
            dcp.save(described, storage_writer=dcp.FileSystemWriter(unfinished), planner=_OneByOne(load), no_dist=True)
        unfinished.rename(directory)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return sum(tensor.nbytes for tensor in described.values())


def _element_of(index: Index, name: str) -> str:
    if name in index.derived:
        return index.derived[name].dtype
    if name not in index.tensors:
        raise NotFound(f"the checkpoint has no tensor {name!r}")
    return index.tensors[name].dtype


@contextmanager
def _alone() -> Iterator[None]:
    """torch warns that there is one process, which is as it is meant."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is", UserWarning)
        yield


class _OneByOne(dcp.DefaultSavePlanner):
    """Loads a tensor when it is to be written. The state that is saved has the shapes only."""

    def __init__(self, load: Callable[[str], torch.Tensor]) -> None:
        super().__init__()
        self._load = load

    def lookup_object(self, index: MetadataIndex) -> torch.Tensor:
        return self._load(index.fqn)


def import_directory(fs: FileSystem, directory: Path, path: str, **options: Any) -> list[str]:
    """Save the tensors of a directory as the checkpoint `path`. Returns the names of the values that are no tensors,
    which are left out. One tensor at a time is in memory, beside the staging area of the save. Raises NotFound,
    Corrupt, NotSupported, InvalidArgument."""
    content = pickled_metadata.read(directory)
    places: dict[str, dict[MetadataIndex, Any]] = {name: {} for name in content.tensors}
    for index, place in content.stored.items():
        places.get(index.fqn, {})[index] = place
    state = {
        name: Deferred(
            _element_type(name, found.properties.dtype).name,
            tuple(found.size),
            partial(_load, directory, name, Metadata({name: found}, storage_data=places[name])),
        )
        for name, found in content.tensors.items()
    }
    save(fs, path, state, **options)
    return content.left_out


def _load(directory: Path, name: str, metadata: Metadata) -> NDArray[Any]:
    tensor = _empty(name, metadata.state_dict_metadata[name])
    with _alone(), _own_errors(directory, Corrupt):
        dcp.load({name: tensor}, storage_reader=_Reader(directory, metadata), no_dist=True)
    array: NDArray[Any] = tensor.view(DTYPES[_element_type(name, tensor.dtype).carrier.name]).numpy()
    return array


@contextmanager
def _own_errors(directory: Path, otherwise: type[ThreefsError]) -> Iterator[None]:
    """torch wraps what goes wrong, also Ctrl-C, in an exception that no `except Exception` sees. Raises what it has
    wrapped, or `otherwise`."""
    try:
        yield
    except CheckpointException as error:
        wrapped, _ = next(iter(error.failures.values()))
        if isinstance(wrapped, OSError) or not isinstance(wrapped, Exception):
            raise wrapped from None
        raise otherwise(f"{directory}: torch.distributed.checkpoint has failed: {wrapped!r}") from None


def _empty(name: str, found: TensorStorageMetadata) -> torch.Tensor:
    _element_type(name, found.properties.dtype)
    try:
        return torch.empty(found.size, dtype=found.properties.dtype)
    except RuntimeError:
        raise InvalidArgument(f"there is no memory for tensor {name!r} of the shape {list(found.size)}") from None


def _element_type(name: str, dtype: torch.dtype) -> ElementType:
    found = ELEMENT_TYPES.get(dtype_name(dtype))
    if found is None:
        raise NotSupported(f"tensor {name!r} is {dtype}, which a checkpoint cannot hold")
    return found


class _Reader(dcp.FileSystemReader):
    """Knows of tensors alone: other values are pickles, of which torch would make objects."""

    def __init__(self, directory: Path, metadata: Metadata) -> None:
        super().__init__(directory)
        self._metadata = metadata

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        return self._metadata
