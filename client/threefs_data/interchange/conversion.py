"""Copies a dataset into another format, and back: as a stream, so any size takes the same memory."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from threefs.errors import AlreadyExists, Corrupt, InvalidArgument, NotFound
from threefs_data import token_format
from threefs_data.dataset import Dataset
from threefs_data.dataset_writer import DatasetWriter
from threefs_data.filesystem_protocol import TreeFileSystem
from threefs_data.interchange import mds, megatron, webdataset
from threefs_data.interchange.exchange_directory import Directory, new_directory
from threefs_data.token_format import TokenFormat

MEGATRON, WEBDATASET, MDS = "megatron", "webdataset", "mds"
FORMATS = (MEGATRON, WEBDATASET, MDS)
DEFAULT_FIELDS = {MEGATRON: "", WEBDATASET: "bin", MDS: "tokens"}
SHARD_BYTES = 64 << 20

_READ_BYTES = 16 << 20
_SAMPLES_AT_ONCE = 1024
#: Called with the samples that are done.
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Transferred:
    path: str
    format: str
    samples: int


def export_dataset(
    fs: TreeFileSystem,
    path: str,
    destination: str,
    kind: str,
    *,
    field: str = "",
    shard_bytes: int = SHARD_BYTES,
    progress: Progress = lambda done: None,
) -> Transferred:
    """Write the samples of a dataset, in their order, into a new directory: of this machine, or `threefs:///path`.

    Bits of document starts are left out. Raises NotFound, AlreadyExists, InvalidArgument, NotSupported, Corrupt.
    """
    field = field or _default_field(kind)
    tokens = _tokens_of(fs, path)
    with Dataset(fs, path) as dataset, new_directory(fs, destination) as directory:
        samples = _counted(_read(dataset), progress)
        if kind == WEBDATASET:
            count = webdataset.write(directory, _values(samples, tokens), field, shard_bytes)
        elif kind == MDS:
            if tokens is None:
                count = mds.write(directory, samples, mds.Column(field), shard_bytes)
            else:
                column = mds.Column(field, tokens.dtype, tokens.sequence_length)
                count = mds.write(directory, _arrays(samples, tokens), column, shard_bytes)
        else:
            if tokens is None:
                raise InvalidArgument(f"Megatron's format is for tokens, and {path} has no {token_format.NAME}")
            count = megatron.write(directory, _arrays(samples, tokens), tokens.dtype)
    return Transferred(destination, kind, count)


def import_dataset(
    fs: TreeFileSystem,
    source: str,
    path: str,
    kind: str,
    *,
    field: str = "",
    shard_bytes: int = 256 << 20,
    progress: Progress = lambda done: None,
) -> Transferred:
    """Make a dataset of the samples of another format, in their order. It appears at `path` when it is whole.

    Of Megatron's, `source` is the name of the two files without its ending. Raises NotFound, AlreadyExists,
    InvalidArgument, NotSupported, Corrupt.
    """
    field = field or _default_field(kind)
    source = source.rstrip("/")
    dtype = ""
    if kind == MEGATRON:
        top, _, name = source.rpartition("/")
        directory = Directory(fs, top or ".")
        dtype = megatron.read_header(directory, name).dtype
        samples: Iterator[bytes] = (tokens.tobytes() for tokens in megatron.read(directory, name))
    elif kind == MDS:
        directory = Directory(fs, source)
        dtype = mds.read_column(directory, field).dtype
        samples = mds.read(directory, field)
    else:
        samples = webdataset.read(Directory(fs, source), field)
    path = path.rstrip("/")
    if fs.stat_many([path])[0] is not None:
        raise AlreadyExists(f"{path} is there already; remove it, or choose another name")
    if parent := path.rpartition("/")[0]:
        fs.mkdir(parent, parents=True)
    count = 0
    with DatasetWriter(fs, path, shard_bytes=shard_bytes) as writer:
        for sample in samples:
            writer.add(_unsigned(sample, dtype, source) if dtype else sample)
            count += 1
            if count % _SAMPLES_AT_ONCE == 0:
                progress(count)
        if dtype:
            writer.add_file(token_format.NAME, TokenFormat(_unsigned_dtype(dtype)).encode())
    progress(count)
    return Transferred(path, kind, count)


def _default_field(kind: str) -> str:
    if kind not in FORMATS:
        raise InvalidArgument(f"there is no format {kind!r}; give one of {', '.join(FORMATS)}")
    return DEFAULT_FIELDS[kind]


def _tokens_of(fs: TreeFileSystem, path: str) -> TokenFormat | None:
    try:
        return token_format.read(fs, path)
    except NotFound:
        return None


def _unsigned_dtype(dtype: str) -> str:
    """That of a dataset, for tokens that others store with a sign."""
    return {"uint8": dtype, "uint16": dtype, "int8": "uint8", "int16": "uint16"}.get(dtype, "uint32")


def _unsigned(sample: bytes, dtype: str, source: str) -> bytes:
    wanted = np.dtype(_unsigned_dtype(dtype))
    if dtype == wanted.name:
        return sample
    tokens = np.frombuffer(sample, np.dtype(dtype).newbyteorder("<"))
    if tokens.size and not 0 <= int(tokens.min()) <= int(tokens.max()) <= np.iinfo(wanted).max:
        raise Corrupt(f"{source} has tokens from {tokens.min()} to {tokens.max()}, and {wanted} holds no such")
    return tokens.astype(wanted.newbyteorder("<")).tobytes()


def _read(dataset: Dataset) -> Iterator[memoryview]:
    """All samples in order, in batches that fit into memory."""
    for first in range(0, len(dataset), _SAMPLES_AT_ONCE):
        yield from _read_range(dataset, first, min(first + _SAMPLES_AT_ONCE, len(dataset)))


def _read_range(dataset: Dataset, first: int, last: int) -> Iterator[memoryview]:
    numbers = range(first, last)
    if last - first > 1 and dataset.locate(numbers).nbytes > _READ_BYTES:
        middle = (first + last) // 2
        yield from _read_range(dataset, first, middle)
        yield from _read_range(dataset, middle, last)
    else:
        yield from dataset.read(numbers)


def _counted(samples: Iterator[memoryview], progress: Progress) -> Iterator[memoryview]:
    count = 0
    for sample in samples:
        yield sample
        count += 1
        if count % _SAMPLES_AT_ONCE == 0:
            progress(count)
    progress(count)


def _arrays(samples: Iterator[memoryview], tokens: TokenFormat) -> Iterator[NDArray[Any]]:
    return (tokens.tokens(sample) for sample in samples)


def _values(samples: Iterator[memoryview], tokens: TokenFormat | None) -> Iterator[memoryview]:
    if tokens is None or not tokens.document_starts:
        return samples
    return (sample[: tokens.sequence_length * tokens.token_bytes] for sample in samples)
