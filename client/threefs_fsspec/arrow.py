# mypy: disable-error-code="import-not-found,import-untyped"
"""The file system as pyarrow asks for it: attributes of many paths in one call, listings, and streams.

    from pyarrow import dataset
    from threefs_fsspec import arrow

    table = dataset.dataset("/data/train", filesystem=arrow.connect("threefs://host:port")).to_table()

pyarrow calls it from its own threads. A file that is written takes its name when it is closed.
"""

from collections.abc import Sequence
from typing import Any

from pyarrow import PythonFile
from pyarrow.fs import FileInfo, FileSelector, FileSystemHandler, FileType, PyFileSystem

from threefs.errors import InvalidArgument, IsADirectory, NotADirectory
from threefs_fsspec.filesystem import ThreefsFileSystem
from threefs_fsspec.listing import Info

__all__ = ["ThreefsHandler", "connect"]

_TYPES = {"file": FileType.File, "directory": FileType.Directory, "other": FileType.Unknown}


def connect(address: str | None = None, **options: Any) -> PyFileSystem:
    """The cluster at "threefs://host:port". Which one it is by default, and the options, are those of fsspec
    (`threefs_fsspec.ThreefsFileSystem`)."""
    return PyFileSystem(ThreefsHandler(ThreefsFileSystem(address, **options)))


class ThreefsHandler(FileSystemHandler):
    """The handler that `pyarrow.fs.PyFileSystem` delegates to."""

    def __init__(self, fs: ThreefsFileSystem) -> None:
        self.fs = fs

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ThreefsHandler) and self.fs == other.fs

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.fs)

    def get_type_name(self) -> str:
        return "threefs"

    def normalize_path(self, path: str) -> str:
        return str(self.fs._strip_protocol(path))

    # ---- attributes ----

    def get_file_info(self, paths: Sequence[str]) -> list[FileInfo]:
        """Of many paths, in one call to a meta service."""
        found = self.fs.infos(paths)
        return [
            FileInfo(path, FileType.NotFound) if one is None else _file_info(path, one)
            for path, one in zip(paths, found, strict=True)
        ]

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        """The entries of a directory; with `recursive` also those below."""
        (top,) = self.fs.infos([selector.base_dir])
        if top is None:
            if selector.allow_not_found:
                return []
            raise FileNotFoundError(f"{selector.base_dir} does not exist")
        if top["type"] != "directory":
            raise NotADirectory(f"{selector.base_dir} is not a directory")
        depth = None if selector.recursive else 1
        found = self.fs.find(selector.base_dir, maxdepth=depth, withdirs=True, detail=True)
        found.pop(self.normalize_path(selector.base_dir), None)
        return [_file_info(self._below(selector.base_dir, path), one) for path, one in found.items()]

    def _below(self, base: str, path: str) -> str:
        """A path that begins as the caller has written the directory."""
        return base.rstrip("/") + path.removeprefix(self.normalize_path(base).rstrip("/"))

    # ---- names ----

    def create_dir(self, path: str, recursive: bool) -> None:
        """An existing directory is no error."""
        if recursive:
            self.fs.makedirs(path, exist_ok=True)
        elif not self.fs.isdir(path):
            self.fs.mkdir(path, create_parents=False)

    def delete_dir(self, path: str) -> None:
        """With everything below it."""
        self._check_directory(path)
        self._remove(path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        if self.normalize_path(path) == "/":
            raise InvalidArgument("the whole cluster would be emptied: that is what delete_root_dir_contents is for")
        if missing_dir_ok and not self.fs.exists(path):
            return
        self._check_directory(path)
        self._empty(path)

    def delete_root_dir_contents(self) -> None:
        self._empty("/")

    def _empty(self, path: str) -> None:
        for name in self.fs.ls(path, detail=False):
            if name != "/.trash":
                self._remove(name)

    def _remove(self, path: str) -> None:
        """Not by `rm`, which would take a name such as "[ab]" for a pattern, and remove others."""
        self.fs.client.remove(self.normalize_path(path), recursive=True)

    def _check_directory(self, path: str) -> None:
        if self.fs.info(path)["type"] != "directory":
            raise NotADirectory(f"{path} is not a directory")

    def delete_file(self, path: str) -> None:
        self.fs.rm_file(path)

    def move(self, src: str, dest: str) -> None:
        """One rename, which replaces a file or an empty directory."""
        self.fs.client.rename(self.normalize_path(src), self.normalize_path(dest))

    def copy_file(self, src: str, dest: str) -> None:
        if self.fs.isdir(src):
            raise IsADirectory(f"{src} is a directory")
        self.fs.cp_file(src, dest)

    # ---- streams ----

    def open_input_stream(self, path: str) -> PythonFile:
        return PythonFile(self.fs.open(path, "rb"), mode="r")

    def open_input_file(self, path: str) -> PythonFile:
        return PythonFile(self.fs.open(path, "rb"), mode="r")

    def open_output_stream(self, path: str, metadata: Any) -> PythonFile:
        return PythonFile(self.fs.open(path, "wb"), mode="w")

    def open_append_stream(self, path: str, metadata: Any) -> PythonFile:
        return PythonFile(self.fs.open(path, "ab"), mode="w")


def _file_info(path: str, found: Info) -> FileInfo:
    kind = _TYPES[found["type"]]
    size = found["size"] if kind is FileType.File else None
    return FileInfo(path, kind, size=size, mtime_ns=found["mtime_ns"])
