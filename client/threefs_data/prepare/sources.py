"""Input files: on the disk of this machine, or in the cluster (`threefs:///path`)."""

import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from threefs.errors import InvalidArgument, NotFound, NotSupported
from threefs_data.filesystem_protocol import TreeFileSystem

REMOTE = "threefs://"
TEXT, JSONL, PARQUET = "text", "jsonl", "parquet"
KINDS = (TEXT, JSONL, PARQUET)
MAX_FILES = 1_000_000

_SUFFIXES = {".txt": TEXT, ".text": TEXT, ".jsonl": JSONL, ".ndjson": JSONL, ".parquet": PARQUET, ".pq": PARQUET}
_BUFFER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """A file as it was when it was found."""

    path: str
    kind: str
    length: int
    mtime_ns: int

    @property
    def is_remote(self) -> bool:
        return self.path.startswith(REMOTE)


def find(fs: TreeFileSystem, inputs: Sequence[str], kind: str | None = None) -> list[Source]:
    """The files that `inputs` name, in their order; those below a directory in the order of their paths.

    Below directories, names that begin with "." or "_" are left out. `kind` is that of all files; None: their names
    say it. Raises NotFound, InvalidArgument.
    """
    found: list[Source] = []
    for name in inputs:
        before = len(found)
        for source in _find_remote(fs, name, kind) if name.startswith(REMOTE) else _find_local(name, kind):
            found.append(source)
            if len(found) > MAX_FILES:
                raise InvalidArgument(f"there are more than {MAX_FILES} input files; join small ones")
        if len(found) == before:
            raise NotFound(f"there is no file to read below {name}")
    return found


def open_source(fs: TreeFileSystem, source: Source) -> BinaryIO:
    """Raises NotFound; InvalidArgument if it has changed since it was found."""
    check_unchanged(fs, source)
    if source.is_remote:
        return io.BufferedReader(fs.open(remote_path(source.path), "rb"), _BUFFER_BYTES)
    return open(source.path, "rb", buffering=_BUFFER_BYTES)


def check_unchanged(fs: TreeFileSystem, source: Source) -> None:
    if source.is_remote:
        found = fs.stat(remote_path(source.path))
        length, mtime_ns = found.length, found.mtime_ns
    else:
        local = os.stat(source.path)
        length, mtime_ns = local.st_size, local.st_mtime_ns
    if (length, mtime_ns) != (source.length, source.mtime_ns):
        raise InvalidArgument(f"{source.path} has changed while it was read; start again when it is complete")


def remote_path(name: str) -> str:
    """The path in the cluster. Raises InvalidArgument for a name that names a cluster."""
    authority, _, path = name.removeprefix(REMOTE).partition("/")
    if authority:
        raise InvalidArgument(f"{name} names a cluster; inputs come from that of the dataset: write {REMOTE}/PATH")
    return "/" + path.strip("/")


def _find_remote(fs: TreeFileSystem, name: str, kind: str | None) -> Iterator[Source]:
    path = remote_path(name)
    found = fs.stat(path)
    if not found.is_directory:
        yield Source(REMOTE + path, kind or _kind_of(path), found.length, found.mtime_ns)
        return
    below: list[tuple[str, Any]] = []
    for directory, directories, entries in fs.walk(path):
        directories[:] = [entry for entry in directories if not _is_hidden(entry.name)]
        below += (
            (f"{directory.rstrip('/')}/{entry.name}", entry.attributes)
            for entry in entries
            if not _is_hidden(entry.name) and entry.attributes.is_file
        )
        if len(below) > MAX_FILES:
            break
    for path, attributes in sorted(below, key=lambda row: row[0]):
        yield Source(REMOTE + path, kind or _kind_of(path), attributes.length, attributes.mtime_ns)


def _find_local(name: str, kind: str | None) -> Iterator[Source]:
    try:
        found = os.stat(name)
    except FileNotFoundError:
        raise NotFound(f"there is no file {name} on this machine; one in the cluster is {REMOTE}/PATH") from None
    path = os.path.abspath(name)
    if not os.path.isdir(path):
        yield Source(path, kind or _kind_of(path), found.st_size, found.st_mtime_ns)
        return
    below: list[str] = []
    for directory, directories, files in os.walk(path):
        directories[:] = [each for each in directories if not _is_hidden(each)]
        below += (os.path.join(directory, each) for each in files if not _is_hidden(each))
        if len(below) > MAX_FILES:
            break
    for path in sorted(below):
        found = os.stat(path)
        yield Source(path, kind or _kind_of(path), found.st_size, found.st_mtime_ns)


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def _kind_of(path: str) -> str:
    suffix = os.path.splitext(path)[1].lower()
    if suffix in (".gz", ".zst", ".bz2", ".xz"):
        raise NotSupported(f"{path} is compressed, so it cannot be read in parallel parts; decompress it first")
    if suffix not in _SUFFIXES:
        raise InvalidArgument(
            f"the name of {path} does not say what it contains; give --input-format text, jsonl or parquet"
        )
    return _SUFFIXES[suffix]
