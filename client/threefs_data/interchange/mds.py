"""MDS, the format of Mosaic's StreamingDataset: `index.json` lists shards, a sample is a row of columns.

A shard: the number of samples (4 bytes); where each sample begins, and the end (4 bytes each); a description as JSON;
the samples. A sample: the sizes of its columns of varying size (4 bytes each), then the columns by name. All integers
are little-endian.
"""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from threefs.checksums import Buffer
from threefs.errors import Corrupt, InvalidArgument, NotSupported
from threefs_data import format
from threefs_data.interchange.exchange_directory import Directory

INDEX_NAME = "index.json"
MAX_INDEX_BYTES = 256 << 20
#: A shard is in memory while it is written: its table comes before its samples.
MAX_SHARD_BYTES = 1 << 30

_VERSION = 2
_PAGE = 1 << 16  # places of samples that are in memory while a shard is read
_BYTES = "bytes"
_RAW = (_BYTES, "str", "json")  # encodings whose bytes are the value
_ARRAY = "ndarray"
_SHAPE_BYTES = (1, 2, 4, 8)  # of each dimension of an array, by the lowest two bits before it
_MAX_PLACE = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the samples, which is read or written."""

    name: str
    dtype: str = ""  # of arrays; empty: bytes
    length: int = 0  # of every array; 0: they vary

    @property
    def encoding(self) -> str:
        return ":".join(filter(None, (_ARRAY, self.dtype, str(self.length or "")))) if self.dtype else _BYTES

    @property
    def size(self) -> int | None:
        return self.length * np.dtype(self.dtype).itemsize if self.dtype and self.length else None


@dataclass(frozen=True, slots=True)
class _Shard:
    basename: str
    samples: int
    names: list[str]
    encodings: list[str]
    sizes: list[int | None]


def write(directory: Directory, samples: Iterable[NDArray[Any] | Buffer], column: Column, shard_bytes: int) -> int:
    """Write shards and index; the number of samples. Samples are arrays if the column has a dtype."""
    if not 1 <= shard_bytes <= MAX_SHARD_BYTES:
        raise InvalidArgument(f"shards of {shard_bytes} bytes are not possible in MDS; give 1 to {MAX_SHARD_BYTES}")
    described = {
        "version": _VERSION,
        "format": "mds",
        "compression": None,
        "hashes": [],
        "size_limit": shard_bytes,
        "column_names": [column.name],
        "column_encodings": [column.encoding],
        "column_sizes": [column.size],
    }
    rows: list[dict[str, Any]] = []
    waiting: list[bytes] = []
    size = 0
    for sample in samples:
        waiting.append(_encode(sample, column))
        size += len(waiting[-1]) + 4
        if size >= shard_bytes:
            rows.append(_write_shard(directory, len(rows), waiting, described))
            waiting, size = [], 0
    if waiting:
        rows.append(_write_shard(directory, len(rows), waiting, described))
    with directory.create(INDEX_NAME) as index:
        index.write(json.dumps({"shards": rows, "version": _VERSION}, sort_keys=True).encode())
    return sum(row["samples"] for row in rows)


def _encode(sample: NDArray[Any] | Buffer, column: Column) -> bytes:
    if not isinstance(sample, np.ndarray):
        content = bytes(sample)
    elif not sample.size:
        raise InvalidArgument("MDS has no empty arrays, and a sample has no tokens")
    elif column.length:
        return sample.tobytes()
    else:
        code = next(code for code, size in enumerate(_SHAPE_BYTES) if len(sample) < 1 << 8 * size)
        content = bytes([1 << 2 | code]) + len(sample).to_bytes(_SHAPE_BYTES[code], "little") + sample.tobytes()
    return len(content).to_bytes(4, "little") + content


def _write_shard(directory: Directory, number: int, samples: list[bytes], described: dict[str, Any]) -> dict[str, Any]:
    name = f"shard.{number:05d}.mds"
    config = json.dumps(described, sort_keys=True).encode()
    places = np.cumsum([0, *map(len, samples)], dtype=np.int64) + 4 + 4 * (len(samples) + 1) + len(config)
    if int(places[-1]) > _MAX_PLACE:
        raise InvalidArgument(f"a shard of {places[-1]} bytes is too large for MDS; make the shards smaller")
    with directory.create(name) as file:
        file.write(len(samples).to_bytes(4, "little") + places.astype("<u4").tobytes() + config)
        file.writelines(samples)
    raw = {"basename": name, "bytes": int(places[-1]), "hashes": {}}
    return {**described, "samples": len(samples), "raw_data": raw, "zip_data": None}


def read_column(directory: Directory, name: str) -> Column:
    """How a column is stored. Raises NotFound, Corrupt, NotSupported, InvalidArgument."""
    shards = _read_index(directory)
    if not shards:
        return Column(name)
    return _column(shards[0], name, directory.place(INDEX_NAME))


def read(directory: Directory, name: str) -> Iterator[bytes]:
    """A column of all samples; of an array its values. Raises NotFound, Corrupt, NotSupported, InvalidArgument."""
    index = directory.place(INDEX_NAME)
    dtypes, basenames = set[str](), set[str]()
    for shard in _read_index(directory):
        where = directory.place(shard.basename)
        column = _column(shard, name, index)
        dtypes.add(column.dtype)
        if len(dtypes) > 1:
            raise NotSupported(f"{index}: the column {name!r} is of another type in {shard.basename} than before it")
        if shard.basename in basenames:  # else a short index is a dataset of any size
            raise Corrupt(f"{index} names {shard.basename} twice")
        basenames.add(shard.basename)
        with directory.open(shard.basename) as file:
            for sample in _samples(file, shard, where):
                content = _cell(sample, shard, name, where)
                yield _values(content, column, where) if column.dtype and not column.length else content


def _read_index(directory: Directory) -> list[_Shard]:
    where = directory.place(INDEX_NAME)
    with directory.open(INDEX_NAME) as index:
        size = index.seek(0, os.SEEK_END)
        if size > MAX_INDEX_BYTES:
            raise Corrupt(f"{where} has {size} bytes, more than {MAX_INDEX_BYTES}")
        index.seek(0)
        content = index.read(size)
    try:
        found = json.loads(content)
        return [_decode_shard(row, where) for row in found["shards"]]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        if isinstance(error, NotSupported | Corrupt):
            raise
        raise Corrupt(f"{where} is not an index of MDS: {error!r}") from None


def _decode_shard(row: dict[str, Any], where: str) -> _Shard:
    if row["version"] != _VERSION or row["format"] != "mds":
        raise NotSupported(f"{where} has shards of format {row['format']!r}, version {row['version']!r}; mds 2 is read")
    if row["compression"]:
        raise NotSupported(f"{where} has shards compressed by {row['compression']!r}; decompress them first")
    names, encodings, sizes = row["column_names"], row["column_encodings"], row["column_sizes"]
    if not len(names) == len(encodings) == len(sizes) or not all(type(text) is str for text in [*names, *encodings]):
        raise Corrupt(f"{where}: the columns of a shard do not fit each other")
    if not all(size is None or (type(size) is int and 0 < size <= format.MAX_SAMPLE_BYTES) for size in sizes):
        raise Corrupt(f"{where}: the columns of a shard have impossible sizes")
    samples, basename = row["samples"], row["raw_data"]["basename"]
    if type(samples) is not int or not 0 <= samples < _MAX_PLACE or type(basename) is not str:
        raise Corrupt(f"{where}: a shard has {samples!r} samples in {basename!r}")
    return _Shard(basename, samples, names, encodings, sizes)


def _column(shard: _Shard, name: str, where: str) -> Column:
    if name not in shard.names:
        raise InvalidArgument(f"{where} has no column {name!r}; it has {', '.join(shard.names)}")
    encoding, size = shard.encodings[shard.names.index(name)], shard.sizes[shard.names.index(name)]
    if encoding in _RAW:
        return Column(name)
    kind, _, rest = encoding.partition(":")
    dtype, _, _ = rest.partition(":")
    if kind != _ARRAY or dtype not in ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"):
        raise NotSupported(
            f"{where}: the column {name!r} is stored as {encoding!r}; bytes, str, json and arrays of "
            "one type of whole numbers are read"
        )
    itemsize = np.dtype(dtype).itemsize
    if size and size % itemsize:
        raise Corrupt(f"{where}: the column {name!r} has {size} bytes, which are no whole numbers of {itemsize}")
    return Column(name, dtype, size // itemsize if size else 0)


def _samples(file: BinaryIO, shard: _Shard, where: str) -> Iterator[bytes]:
    if file.read(4) != shard.samples.to_bytes(4, "little"):
        raise Corrupt(f"{where} has not the {shard.samples} samples that the index promises")
    file_end = file.seek(0, os.SEEK_END)
    for first in range(0, shard.samples, _PAGE):
        count = min(_PAGE, shard.samples - first)
        file.seek(4 + 4 * first)
        content = file.read(4 * (count + 1))
        if len(content) != 4 * (count + 1):
            raise Corrupt(f"{where} is cut short")
        places = np.frombuffer(content, "<u4").tolist()
        file.seek(places[0])
        for start, end in pairwise(places):
            if not 0 <= end - start <= format.MAX_SAMPLE_BYTES:
                raise Corrupt(f"{where} has a sample from byte {start} to {end}")
            if end > file_end:
                raise Corrupt(f"{where} ends within a sample at byte {start}")
            yield file.read(end - start)


def _cell(sample: bytes, shard: _Shard, name: str, where: str) -> bytes:
    varying = sum(size is None for size in shard.sizes)
    if len(sample) < 4 * varying:
        raise Corrupt(f"{where} has a sample of {len(sample)} bytes, too few for its columns")
    stored = iter(np.frombuffer(sample, "<u4", varying).tolist())
    sizes = [next(stored) if size is None else size for size in shard.sizes]
    if 4 * varying + sum(sizes) != len(sample):
        raise Corrupt(f"{where} has a sample of {len(sample)} bytes, and columns of {sum(sizes)} bytes")
    at = shard.names.index(name)
    start = 4 * varying + sum(sizes[:at])
    return sample[start : start + sizes[at]]


def _values(content: bytes, column: Column, where: str) -> bytes:
    """Without the shape in front of them."""
    head = content[0] if content else 0
    dimensions, size = head >> 2, _SHAPE_BYTES[head & 3]
    start = 1 + dimensions * size
    shape = [int.from_bytes(content[at : at + size], "little") for at in range(1, start, size)]
    count = 1
    for dimension in shape:
        count *= dimension
    if not dimensions or len(content) != start + count * np.dtype(column.dtype).itemsize:
        raise Corrupt(f"{where}: an array of {len(content)} bytes does not have the shape {shape}")
    return content[start:]
