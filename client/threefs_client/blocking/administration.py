"""Quotas and the trash for blocking programs: shells around the asyncio ones."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from threefs_client.attributes import Attributes
from threefs_client.metadata.quotas import Quota, Quotas
from threefs_client.metadata.trash import Trash, Trashed
from threefs_client.paths import Path

if TYPE_CHECKING:
    from threefs_client.blocking.filesystem import FileSystem


class BlockingQuotas:
    """See Quotas."""

    def __init__(self, filesystem: "FileSystem", quotas: Quotas) -> None:
        self._filesystem = filesystem
        self._quotas = quotas

    def set(
        self, path: Path | None = None, *, uid: int | None = None, limit_bytes: int = 0, limit_inodes: int = 0
    ) -> None:
        """Limit what may be in a tree or belong to a user; 0 only counts. For the administrator."""
        self._filesystem._run(self._quotas.set(path, uid=uid, limit_bytes=limit_bytes, limit_inodes=limit_inodes))

    def clear(self, path: Path | None = None, *, uid: int | None = None) -> None:
        """There is no quota from now on."""
        self._filesystem._run(self._quotas.clear(path, uid=uid))

    def show(self, path: Path | None = None, *, uid: int | None = None) -> Quota | None:
        """The quota that what is at `path` counts for, or that of a user; None if there is none."""
        return self._filesystem._run(self._quotas.show(path, uid=uid))

    def list(self) -> Sequence[Quota]:
        """All of them. For the administrator."""
        return self._filesystem._run(self._quotas.list())


class BlockingTrash:
    """See Trash."""

    def __init__(self, filesystem: "FileSystem", trash: Trash) -> None:
        self._filesystem = filesystem
        self._trash = trash

    def set(self, directory: Path, seconds: int | None) -> Attributes:
        """What is removed below the directory from now on is kept so long. 0: it is not kept; None: as above it."""
        return self._filesystem._run(self._trash.set(directory, seconds))

    def list(self, uid: int | None = None) -> Iterator[Trashed]:
        """What is in the trash: of one owner, or as far as it may be seen."""
        return iter(self._filesystem._run(_all(self._trash, uid)))

    def restore(self, path: Path, to: Path | None = None, *, parents: bool = False) -> str:
        """Put something in the trash, which `list` calls `path`, back where it was, or to another path; where it is.

        `parents` makes missing directories. Raises AlreadyExists, and NotFound when the directory is not there.
        """
        return self._filesystem._run(self._trash.restore(path, to, parents=parents))

    def empty(self, uid: int | None = None) -> int:
        """Remove for good what is in the trash of one owner, or as far as it may be removed; how many things."""
        return self._filesystem._run(self._trash.empty(uid))


async def _all(trash: Trash, uid: int | None) -> list[Trashed]:
    return [item async for item in trash.list(uid)]
