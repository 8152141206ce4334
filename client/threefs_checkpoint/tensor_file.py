"""A safetensors file on a cluster: only the bytes that are asked for are read, straight into the memory of the tensors.

Nothing is mapped, and there is no copy on the way. What a tensor is (an array of numpy, a tensor of torch) is left to
subclasses.
"""

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, NamedTuple, Self, TypeVar

from numpy.typing import NDArray

from threefs.checksums import Buffer
from threefs.env.random import RANDOM
from threefs.errors import AlreadyExists, InvalidArgument, NotFound, ThreefsError, Unavailable
from threefs_checkpoint import safetensors_format
from threefs_checkpoint.batch_reader import BatchReader
from threefs_checkpoint.filesystem_protocol import FileSystem
from threefs_checkpoint.safetensors_format import LENGTH_BYTES, TensorInfo
from threefs_checkpoint.slices import Slice, StoredSlice, whole

#: Bytes that are asked for at a time. Enough for every storage process to have some.
BATCH_BYTES = 256 << 20

#: A tensor.
T = TypeVar("T")
#: An index of a tensor: numbers, slices with the step 1, and one "...".
Key = int | slice | Any


class KnownHeader(NamedTuple):
    """The report of a rank to the others about a file."""

    inode: int  # another file that takes the name has another one
    content: bytes  # the header, as it stands in the file


class TensorFile(ABC, Generic[T]):
    """Use it in a `with` block, or call `close`. It goes on reading the file that it has opened, also when another one
    takes the name."""

    def __init__(self, fs: FileSystem, path: str, *, known: KnownHeader | None = None) -> None:
        """`known` is what another rank has read. Raises NotFound, Corrupt, NotSupported, and Unavailable if that rank
        has read another file."""
        self.path = path
        self.bytes_read = 0
        self._fs = fs
        self._file = fs.open(path, "rb")
        try:
            self.known = known or KnownHeader(self._file.inode, self._read_header())
            if self.known.inode != self._file.inode:
                raise Unavailable(f"{path} was replaced while the ranks opened it; load it again")
            self.header = safetensors_format.decode_header(self.known.content, self._file.length, path)
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def empty(self, name: str, info: TensorInfo, shape: tuple[int, ...]) -> tuple[T, NDArray[Any]]:
        """A new tensor with the dtype of the tensor `name`, and its memory as an array of numbers of the same size.
        Raises NotSupported."""

    # ---- what it holds ----

    def keys(self) -> list[str]:
        """In the order of their bytes."""
        return list(self.header.tensors)

    def metadata(self) -> dict[str, str]:
        """The texts that whoever saved the file has added."""
        return dict(self.header.metadata)

    def info(self, name: str) -> TensorInfo:
        """Raises NotFound."""
        found = self.header.tensors.get(name)
        if found is None:
            raise NotFound(f"{self.path} has no tensor {name!r}")
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    # ---- reading ----

    def get_tensor(self, name: str) -> T:
        """Raises NotFound, Corrupt, NotSupported."""
        return self.get_tensors([name])[name]

    def get_tensors(self, names: Iterable[str] | None = None) -> dict[str, T]:
        """The tensors of these names, or all, read in batches. Raises NotFound, Corrupt, NotSupported."""
        found: dict[str, T] = {}
        reader = BatchReader(self._fs, BATCH_BYTES)
        for name in self.keys() if names is None else names:
            info = self.info(name)
            found[name], memory = self.empty(name, info, info.shape)
            reader.add_slice(self._file, info.offset, StoredSlice(info.shape, whole(info.shape)), memory)
        self._finish(reader)
        return found

    def get_slice(self, name: str) -> "TensorSlice[T]":
        """`file.get_slice(name)[0:8, 16]` reads that part of the tensor. Raises NotFound."""
        return TensorSlice(self, name, self.info(name))

    def read_part(self, name: str, part: Slice) -> T:
        """Raises Corrupt, NotSupported."""
        info = self.info(name)
        tensor, memory = self.empty(name, info, part.shape)
        reader = BatchReader(self._fs, BATCH_BYTES)
        reader.add_slice(self._file, info.offset, StoredSlice(info.shape, part), memory)
        self._finish(reader)
        return tensor

    def read_ranges(self, ranges: Iterable[tuple[int, memoryview]]) -> None:
        """Fill each view from an offset of the file on. Raises Corrupt."""
        reader = BatchReader(self._fs, BATCH_BYTES)
        reader.add(self._file, list(ranges))
        self._finish(reader)

    def _finish(self, reader: BatchReader) -> None:
        reader.flush()
        self.bytes_read += reader.bytes_read

    def _read_header(self) -> bytes:
        start = bytes(self._read(0, LENGTH_BYTES))
        return bytes(self._read(LENGTH_BYTES, safetensors_format.header_bytes(start, self._file.length, self.path)))

    def _read(self, offset: int, length: int) -> memoryview:
        (view,) = self._fs.read_batch([(self._file, offset, length)])
        self.bytes_read += len(view)
        return view


class TensorSlice(Generic[T]):
    """Parts of a tensor that is not read yet."""

    def __init__(self, file: TensorFile[T], name: str, info: TensorInfo) -> None:
        self._file = file
        self._name = name
        self._info = info

    def get_shape(self) -> list[int]:
        return list(self._info.shape)

    def get_dtype(self) -> str:
        """As the format names it."""
        return self._info.dtype

    def __getitem__(self, key: Key) -> T:
        part, shape = slice_of(self._info.shape, key)
        read: Any = self._file.read_part(self._name, part)
        found: T = read.reshape(shape)
        return found


def slice_of(shape: tuple[int, ...], key: Key) -> tuple[Slice, tuple[int, ...]]:
    """The slice of a tensor that an index means, and the shape of what is there.

    Raises InvalidArgument, and IndexError for a number beyond the end."""
    parts = list(key) if isinstance(key, tuple) else [key]
    places = [number for number, part in enumerate(parts) if part is ...]
    named = len(parts) - len(places)
    if len(places) > 1 or named > len(shape):
        raise InvalidArgument(f'an index has at most one "..." and, for the shape {list(shape)}, {len(shape)} parts')
    at = places[0] if places else len(parts)
    parts[at : at + 1] = [slice(None)] * (len(shape) - named)
    extents = [_extent(part, length) for part, length in zip(parts, shape, strict=True)]
    part = Slice(tuple(first for first, _ in extents), tuple(1 if n is None else n for _, n in extents))
    return part, tuple(number for _, number in extents if number is not None)


def _extent(part: Any, length: int) -> tuple[int, int | None]:
    """First index and how many; None for a single one, whose dimension goes."""
    if isinstance(part, slice):
        first, end, step = part.indices(length)
        if step != 1:
            raise InvalidArgument(f"a slice of a tensor in a file has the step 1, not {step}")
        return min(first, length), max(0, end - first)
    try:
        index = operator.index(part)
    except TypeError:
        raise InvalidArgument(f'{part!r} is no index of a tensor in a file; numbers, slices and "..." are') from None
    if not -length <= index < length:
        raise IndexError(f"index {index} is out of range for {length}")
    return index % length, None


def write(
    fs: FileSystem,
    path: str,
    described: Mapping[str, tuple[str, tuple[int, ...]]],
    contents: Callable[[str], Iterable[Buffer]],
    metadata: Mapping[str, str] | None,
    chunk_bytes: int,
) -> int:
    """Write a file of tensors with these dtypes and shapes. It appears whole under its name, also in place of another
    one; directories above it are made. Returns its length.

    Raises InvalidArgument and others. Then the name stands for what it stood for before."""
    start, header = safetensors_format.encode_header(described, metadata)
    directory, _, name = path.rpartition("/")
    with _unnamed(fs, directory or "/", chunk_bytes) as file:
        file.write(start)
        for tensor in header.tensors:
            for content in contents(tensor):
                file.write(content)
        try:
            fs.link_file(file, path)
        except AlreadyExists:
            _replace(fs, file, path, f"{directory}/.{name}.{RANDOM.token(8).hex()}")
    return header.file_bytes


def _unnamed(fs: FileSystem, directory: str, chunk_bytes: int) -> Any:
    try:
        return fs.create_unnamed(directory, permissions=0o644, chunk_bytes=chunk_bytes)
    except NotFound:
        fs.mkdir(directory, parents=True)
        return fs.create_unnamed(directory, permissions=0o644, chunk_bytes=chunk_bytes)


def _replace(fs: FileSystem, file: Any, path: str, temporary: str) -> None:
    fs.link_file(file, temporary)
    try:
        fs.rename(temporary, path)
    except BaseException:
        with suppress(ThreefsError):
            fs.remove(temporary)
        raise
