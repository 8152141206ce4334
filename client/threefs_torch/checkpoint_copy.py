"""Copies a checkpoint to a directory of torch.distributed.checkpoint on this machine, and such a directory to a
checkpoint. Neither runs code that a file contains."""

import os
import pickle
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from threefs_checkpoint import loading
from threefs_checkpoint.checkpoint import save
from threefs_checkpoint.dtypes import ELEMENT_TYPES
from threefs_checkpoint.filesystem_protocol import FileSystem
from threefs_checkpoint.index import Index
from threefs_checkpoint.job_directory import read_index
from threefs_checkpoint.state import Shard
from torch.distributed.checkpoint import metadata as of_torch
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, TensorStorageMetadata

from threefs.env.random import RANDOM
from threefs.errors import AlreadyExists, Corrupt, NotFound, NotSupported
from threefs_torch.tensor_bytes import DTYPES, dtype_name

_METADATA = ".metadata"
_TOKEN_BYTES = 8
#: Functions and classes that the metadata name beside those of torch's module for them and the types of numbers.
_NAMED = {
    ("collections", "OrderedDict"),
    ("pathlib", "PosixPath"),
    ("torch", "Size"),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch.serialization", "_get_layout"),
}


def export(fs: FileSystem, path: str, directory: Path, names: Sequence[str] | None = None) -> int:
    """Write the tensors of a checkpoint, or those of these names, to the new `directory`, which appears when it is
    whole. Returns their bytes. One tensor at a time is in memory. Raises NotFound, Corrupt, AlreadyExists."""
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
        with _alone():
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
    which are left out. Needs memory for all tensors. Raises NotFound, Corrupt, NotSupported."""
    entries = _read_metadata(directory).state_dict_metadata
    tensors = {
        name: torch.empty(found.size, dtype=found.properties.dtype)
        for name, found in entries.items()
        if isinstance(found, TensorStorageMetadata)
    }
    state = {name: _shard(name, tensor) for name, tensor in tensors.items()}
    with _alone():
        dcp.load(tensors, storage_reader=_Reader(directory), no_dist=True)  # into the memory of the shards
    save(fs, path, state, **options)
    return [name for name in entries if name not in tensors]


def _shard(name: str, tensor: torch.Tensor) -> Shard:
    dtype = dtype_name(tensor.dtype)
    if dtype not in ELEMENT_TYPES:
        raise NotSupported(f"tensor {name!r} is {dtype}, which a checkpoint cannot hold")
    kind = ELEMENT_TYPES[dtype]
    array = tensor.view(DTYPES[kind.carrier.name]).numpy()
    return Shard(array, array.shape, (0,) * array.ndim, dtype)


class _Reader(dcp.FileSystemReader):
    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        return _read_metadata(Path(self.path))


def _read_metadata(directory: Path) -> Metadata:
    file = directory / _METADATA
    try:
        with file.open("rb") as opened:
            found = _Unpickler(opened).load()
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(
            f"{directory} is no directory of torch.distributed.checkpoint: there is no file {file}"
        ) from None
    except NotSupported as error:
        raise NotSupported(f"{file} {error}") from None
    except Exception as error:  # a pickle that is cut short or damaged raises many kinds
        raise Corrupt(f"{file} is not what torch.distributed.checkpoint writes: {error!r}") from None
    if not isinstance(found, Metadata):
        raise Corrupt(f"{file} is not what torch.distributed.checkpoint writes: it has a {type(found).__name__}")
    return found


def _member(kind: Any, name: str) -> Any:
    """As Python pickles members of enumerations, in some versions."""
    if not (isinstance(kind, type) and issubclass(kind, Enum)):
        raise NotSupported(f"asks {kind!r} for {name!r}, which metadata of torch.distributed.checkpoint do not")
    return kind[name]


class _Unpickler(pickle.Unpickler):
    """Makes the objects of which metadata consist, and no others."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "getattr"):
            return _member
        found = getattr(torch, name, None) if module == "torch" else getattr(of_torch, name, None)
        is_number = module == "torch" and isinstance(found, torch.dtype)
        is_described = module == of_torch.__name__ and isinstance(found, type) and found.__module__ == module
        if is_number or is_described or (module, name) in _NAMED:
            return super().find_class(module, name)
        raise NotSupported(f"names {module}.{name}, which metadata of torch.distributed.checkpoint do not have")
