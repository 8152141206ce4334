"""The directory of a distributed checkpoint on a cluster: its files, and the metadata that makes it complete."""

from os import PathLike, fspath
from typing import Any

from threefs_client import FileSystem
from threefs_fsspec import ThreefsFileSystem, urls
from torch.distributed.checkpoint.metadata import Metadata

from threefs.errors import AlreadyExists, Corrupt, InvalidArgument, NotFound
from threefs_torch import metadata_format

_METADATA = ".metadata.json"
_OF_TORCH = ".metadata"  # a pickle, which only torch reads


class CheckpointDirectory:
    """It can be pickled. Another process connects anew."""

    def __init__(self, url: "str | PathLike[str]", **options: Any) -> None:
        """`url` is threefs://host:port/path, or threefs:///path for the cluster of the settings. `options` are those of
        the connection. Raises InvalidArgument."""
        if not is_url(url):
            raise InvalidArgument(f"{fspath(url)!r} is not on a cluster; write threefs://host:port/path")
        address, self.path = urls.split(fspath(url))
        self._fs = ThreefsFileSystem(address or None, **options)
        self._options = options

    def other(self, url: "str | PathLike[str]") -> "CheckpointDirectory":
        """Another checkpoint, with the same options."""
        return CheckpointDirectory(url, **self._options)

    @property
    def fs(self) -> FileSystem:
        return self._fs.client

    @property
    def url(self) -> str:
        return str(self._fs.unstrip_protocol(self.path))

    def file(self, name: str) -> str:
        return f"{self.path.rstrip('/')}/{name}"

    def _metadata_path(self, rank: int | None) -> str:
        """Of all ranks together, or of one that saves without the others."""
        return self.file(_METADATA if rank is None else f".rank-{rank}{_METADATA}")

    def read_metadata(self, rank: int | None = None) -> Metadata:
        """Raises NotFound, Corrupt, NotSupported."""
        path = self._metadata_path(rank)
        try:
            with self.fs.open(path, "rb") as file:
                if file.length > metadata_format.MAX_BYTES:
                    raise Corrupt(f"{path} has {file.length} bytes; metadata have at most {metadata_format.MAX_BYTES}")
                content = file.read()
        except NotFound:
            if rank is None and self.fs.exists(self.file(_OF_TORCH)):
                raise NotFound(
                    f"{self.url} was written by FsspecWriter or FileSystemWriter of torch: read it with FsspecReader"
                ) from None
            raise NotFound(f"{self.url} has no {path.rpartition('/')[2]}: no save into it was completed") from None
        return metadata_format.decode(content, path)

    def publish(self, metadata: Metadata, *, rank: int | None, replace: bool) -> None:
        """From now on the checkpoint is that of `metadata`. The file takes its name in one step. Raises AlreadyExists,
        InvalidArgument."""
        content = metadata_format.encode(metadata)
        path = self._metadata_path(rank)
        try:
            self.fs.write_file(path, content, parents=True, replace=replace, exclusive=not replace)
        except AlreadyExists:
            raise AlreadyExists(self.taken) from None

    def is_published(self, rank: int | None) -> bool:
        return self.fs.exists(self._metadata_path(rank))

    @property
    def taken(self) -> str:
        return f"{self.url} has a checkpoint already; save into another directory, or with overwrite=True"


def is_url(checkpoint_id: "str | PathLike[str]") -> bool:
    return fspath(checkpoint_id).startswith(f"{urls.PROTOCOL}://")
