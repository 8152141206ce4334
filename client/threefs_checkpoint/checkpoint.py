"""Save a dictionary of numpy arrays as one file, and load all or some of them."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from threefs.checksums import crc32c
from threefs.env.random import RANDOM, Random
from threefs.errors import Corrupt, InvalidArgument, NotFound, ThreefsError
from threefs_checkpoint import format
from threefs_checkpoint.filesystem_protocol import FileSystem
from threefs_checkpoint.format import ArrayInfo

_BATCH_BYTES = 256 << 20

Piece = tuple[int, memoryview]  # offset in the file, bytes


def save(
    fs: FileSystem,
    path: str,
    arrays: Mapping[str, NDArray[Any]],
    *,
    chunk_bytes: int = 0,
    random: Random = RANDOM,
) -> None:
    """Write `arrays` to the file `path`, which appears whole or, if this fails, not at all. An older one is replaced.

    `chunk_bytes` is that of the new file; 0 takes what its directory says. Raises InvalidArgument for what is not plain
    numbers.
    """
    contents = {name: _content(name, array) for name, array in arrays.items()}
    unfinished = f"{path}.unfinished-{random.token(8).hex()}"
    try:
        with fs.open(unfinished, "wb", chunk_bytes=chunk_bytes) as file:
            _write(fs, file, arrays, contents, fs.stat(unfinished).layout.chunk_bytes)
        fs.rename(unfinished, path)
    except BaseException:
        _remove_quietly(fs, unfinished)
        raise


def read_index(fs: FileSystem, path: str) -> dict[str, ArrayInfo]:
    """What the checkpoint holds. Raises NotFound, Corrupt, NotSupported."""
    with fs.open(path, "rb") as file:
        return _read_index(fs, file, path)[1]


def load(fs: FileSystem, path: str, names: Iterable[str] | None = None) -> dict[str, NDArray[Any]]:
    """The arrays of these names, or all, each verified. Raises NotFound, Corrupt, NotSupported."""
    with fs.open(path, "rb") as file:
        header, index = _read_index(fs, file, path)
        wanted = list(index) if names is None else list(names)
        missing = sorted(set(wanted) - set(index))
        if missing:
            raise NotFound(f"{path} has no array {missing[0]!r}")
        arrays = {name: np.empty(index[name].shape, format.DTYPES[index[name].dtype]) for name in wanted}
        contents = [(index[name].offset, _bytes_of(arrays[name])) for name in arrays]
        pieces = (piece for offset, content in contents for piece in _pieces(offset, content, header.chunk_bytes))
        for batch in _batches(pieces):
            rows = [(file, offset, len(view)) for offset, view in batch]
            views = fs.read_batch(rows, into=[view for _, view in batch])
            if any(len(view) != row[2] for view, row in zip(views, rows, strict=True)):
                raise Corrupt(f"{path} was cut short")
    for name, array in arrays.items():
        if crc32c(_bytes_of(array)) != index[name].crc:
            raise Corrupt(f"array {name!r} of {path} does not match its checksum")
    return arrays


def _read_index(fs: FileSystem, file: Any, path: str) -> tuple[format.Header, dict[str, ArrayInfo]]:
    (content,) = fs.read_batch([(file, 0, format.HEADER_BYTES)])
    header = format.decode_header(bytes(content), path)
    (content,) = fs.read_batch([(file, header.index_offset, header.index_bytes)])
    return header, format.decode_index(bytes(content), header, path)


def _content(name: str, array: NDArray[Any]) -> memoryview:
    format.check_name(name)
    if not isinstance(array, np.ndarray):
        raise InvalidArgument(
            f"array {name!r} is a {type(array).__module__}.{type(array).__qualname__}, and a checkpoint holds numpy "
            "arrays: tensor.detach().cpu().numpy() makes one of a torch tensor, numpy.asarray of a number or a list"
        )
    format.dtype_name(name, array.dtype)
    return _bytes_of(np.ascontiguousarray(array))


def _bytes_of(array: NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _write(
    fs: FileSystem, file: Any, arrays: Mapping[str, NDArray[Any]], contents: dict[str, memoryview], chunk_bytes: int
) -> None:
    offsets, end = format.lay_out({name: len(content) for name, content in contents.items()}, chunk_bytes)
    if end > format.MAX_FILE_BYTES:
        raise InvalidArgument(f"a checkpoint of {end} bytes is larger than {format.MAX_FILE_BYTES}")
    ordered = sorted(((offset, contents[name]) for name, offset in offsets.items()), key=lambda piece: piece[0])
    for batch in _batches(_whole_chunks(ordered, chunk_bytes)):
        fs.write_batch([(file, offset, view) for offset, view in batch])
    index = format.encode_index(
        ArrayInfo(name, arrays[name].dtype.name, arrays[name].shape, offsets[name], crc32c(content))
        for name, content in contents.items()
    )
    header = format.Header(chunk_bytes, end, len(index), crc32c(index))
    tail = _pieces(end, memoryview(index), chunk_bytes)
    fs.write_batch([(file, offset, view) for offset, view in tail])
    fs.write_batch([(file, 0, memoryview(format.encode_header(header)))])


def _whole_chunks(ordered: Iterable[Piece], chunk_bytes: int) -> Iterator[Piece]:
    """Pieces that never cross a chunk boundary, no two of them in the same chunk."""
    shared = bytearray()  # a chunk that several small arrays share, as far as it is filled
    start = 0
    for offset, content in ordered:
        for position, piece in _pieces(offset, content, chunk_bytes):
            if shared and position // chunk_bytes != start // chunk_bytes:
                yield start, memoryview(shared)
                shared = bytearray()
            if len(piece) == chunk_bytes:
                yield position, piece
            else:
                start = position if not shared else start
                shared += bytes(position - start - len(shared))
                shared += piece
    if shared:
        yield start, memoryview(shared)


def _pieces(offset: int, content: memoryview, chunk_bytes: int) -> Iterator[Piece]:
    """`content` cut at the multiples of `chunk_bytes` in the file."""
    begin = 0
    while begin < len(content):
        end = min(len(content), begin + chunk_bytes - (offset + begin) % chunk_bytes)
        yield offset + begin, content[begin:end]
        begin = end


def _batches(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    batch: list[Piece] = []
    size = 0
    for piece in pieces:
        batch.append(piece)
        size += len(piece[1])
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _remove_quietly(fs: FileSystem, path: str) -> None:
    with suppress(ThreefsError):  # the reason for giving up is the error to show; the name says "unfinished"
        fs.remove(path)
