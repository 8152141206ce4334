"""The trash: removed files below a directory with a trash time are kept in /.trash/OWNER until that time has passed."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from threefs.errors import AlreadyExists, InvalidArgument, NotADirectory, NotFound, Retry, ThreefsError
from threefs.paging import next_place
from threefs.rpc import methods
from threefs.rpc.methods import Method, Rep, Req
from threefs.wire import meta_pb2 as pb
from threefs_client import paths
from threefs_client.attributes import Attributes, Entry
from threefs_client.context import ClientContext
from threefs_client.paths import Path

TOP = "/.trash"
_NO_NAME = b"."  # of an entry


@dataclass(frozen=True, slots=True)
class Trashed:
    """A removed file or tree."""

    path: str  # where it is now
    original: str  # where it was; empty if that path was too deep to record
    owner: int  # user id
    removed_by: int  # user id
    removed_ns: int  # Unix time
    left_s: int  # until it is deleted; time without a running meta service does not count
    attributes: Attributes


class _Namespace(Protocol):
    context: ClientContext
    caller: pb.Caller

    async def _call(self, method: Method[Req, Rep], request: Req) -> Rep: ...

    async def stat(self, path: Path, *, follow: bool) -> Attributes: ...

    def list(self, path: Path) -> AsyncIterator[Entry]: ...

    async def mkdir(self, path: Path, *, parents: bool) -> Attributes: ...

    async def rename(self, source: Path, destination: Path, *, replace: bool) -> Attributes: ...

    async def remove(self, path: Path, *, recursive: bool) -> object: ...


class Trash:
    def __init__(self, namespace: _Namespace) -> None:
        self._namespace = namespace

    async def set(self, directory: Path, seconds: int | None) -> Attributes:
        """Keep everything that is removed below the directory for `seconds` from now on. 0: delete at once; None: as in
        the directory above.

        For the owner of the directory. Raises InvalidArgument for more than ten years.
        """
        if seconds is not None and not 0 <= seconds < 1 << 32:
            raise InvalidArgument(f"a trash time is a number of seconds from 0 to {(1 << 32) - 1}, not {seconds}")
        request = pb.SetTrashRequest(
            mutation=self._namespace.context.meta.mutation(), place=paths.place(directory), trash_s=seconds
        )
        return Attributes((await self._namespace._call(methods.SET_TRASH, request)).inode)

    async def list(self, uid: int | None = None) -> AsyncIterator[Trashed]:
        """The items in the trash of one owner, or of all owners whose trash the caller may see."""
        for owner in await self._owners(uid):
            after, more = b"", True
            while more:
                reply = await self._page(owner, after)
                if reply is None:
                    break
                for item in reply.items:
                    yield _of_wire(item, owner)
                if more := reply.more:
                    after = next_place("the trash", after, reply.next)

    async def _page(self, owner: int, after: bytes = b"", only: bytes = b"") -> pb.ListTrashReply | None:
        """Items of one owner. None: that owner has no trash, also if somebody has made something else in its place."""
        request = pb.ListTrashRequest(place=paths.place(_of_owner(owner)), after=after, only=only)
        try:
            return await self._namespace._call(methods.LIST_TRASH, request)
        except (NotFound, NotADirectory, InvalidArgument):
            return None

    async def restore(self, path: Path, to: Path | None = None, *, parents: bool = False) -> str:
        """Move an item out of the trash, where `list` shows it as `path`, back to its original path or to another one.
        Returns the path.

        `parents` creates missing directories. Raises AlreadyExists, NotFound when the directory does not exist, and
        InvalidArgument for a path outside the trash.
        """
        if not _is_below_top(path):
            raise InvalidArgument(f"{paths.display(path)} is not in the trash: nothing is put back")
        destination = await self._original(path) if to is None else paths.display(to)
        if parents:
            above = destination.rstrip("/").rpartition("/")[0]
            await self._namespace.mkdir(above or "/", parents=True)
        try:
            await self._namespace.rename(path, destination, replace=False)
        except AlreadyExists:
            raise AlreadyExists(f"{destination} exists already: restore it to another path") from None
        except NotFound:
            await self._namespace.stat(path, follow=False)
            raise NotFound(
                f"the directory of {destination} does not exist: create it, or restore to another path"
            ) from None
        return destination

    async def _original(self, path: Path) -> str:
        directory, _, name = paths.encode(path).rstrip(b"/").rpartition(b"/")
        request = pb.ListTrashRequest(place=pb.Place(path=directory), only=name)
        reply = await self._namespace._call(methods.LIST_TRASH, request)
        if not reply.items:
            await self._namespace.stat(path, follow=False)  # raises NotFound
        if not reply.items or not reply.items[0].path:
            raise InvalidArgument(
                f"the original path of {paths.display(path)} is not known: restore it to another path"
            )
        return paths.decode(reply.items[0].path)

    async def empty(self, uid: int | None = None) -> int:
        """Delete all items in the trash of one owner, or of all owners whose trash the caller may empty. Returns the
        number of items.

        An item that cannot be deleted keeps no other one in the trash. Its error is raised at the end; of several the
        last one.
        """
        count, failures = 0, list[ThreefsError]()
        for owner in await self._owners(uid):
            with _collected(failures):
                if await self._page(owner, only=_NO_NAME) is None:
                    continue  # a directory of somebody, or a link to one, is no trash
                async for entry in self._namespace.list(_of_owner(owner)):
                    with _collected(failures):
                        await self._namespace.remove(paths.join(_of_owner(owner), entry.name), recursive=True)
                        count += 1
        if failures:
            raise failures[-1]
        return count

    async def _owners(self, uid: int | None) -> Sequence[int]:
        if uid is not None:
            return [uid]
        caller = self._namespace.caller
        if caller.uid:
            return [caller.uid]
        try:
            return sorted([int(entry.name) async for entry in self._namespace.list(TOP) if entry.name.isdecimal()])
        except (NotFound, NotADirectory):
            return []


@contextmanager
def _collected(failures: list[ThreefsError]) -> Iterator[None]:
    """Collect the error of one item or owner, and go on. A cluster that does not answer would not do so for others."""
    try:
        yield
    except NotFound:
        pass  # it was restored since it was listed, or its time is over
    except ThreefsError as error:
        if error.retry is not Retry.NEVER:
            raise
        failures.append(error)


def _of_owner(uid: int) -> str:
    return f"{TOP}/{uid}"


def _is_below_top(path: Path) -> bool:
    names = [name for name in paths.encode(path).split(b"/") if name]
    return len(names) > 1 and names[0] == TOP[1:].encode() and b".." not in names


def _of_wire(item: pb.TrashItem, owner: int) -> Trashed:
    return Trashed(
        path=paths.join(_of_owner(owner), paths.decode(item.name)),
        original=paths.decode(item.path),
        owner=owner,
        removed_by=item.uid,
        removed_ns=item.removed_ns,
        left_s=item.left_s,
        attributes=Attributes(item.inode),
    )
