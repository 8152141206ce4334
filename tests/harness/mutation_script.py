"""Every mutation of the meta service once, with its reply, so that each can be asked for again."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from threefs.rpc import methods
from threefs.rpc.methods import Method
from threefs.wire import meta_pb2 as pb

CLIENT = b"mutation-script!"
_FIRST, _SECOND = b"1" * 16, b"2" * 16  # sessions
Call = Callable[[Method[Any, Any], Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Asked:
    method: Method[Any, Any]
    request: Any
    reply: Any


def _as_root(request: Any) -> Any:
    if "caller" in request.DESCRIPTOR.fields_by_name:
        request.caller.SetInParent()
    return request


class Script:
    """Works in a directory of its own, `top`."""

    def __init__(self, call: Call, top: str) -> None:
        self._call = call
        self._top = top
        self._request = 0
        self.asked: list[Asked] = []

    def _at(self, path: str) -> pb.Place:
        return pb.Place(path=f"{self._top}/{path}".rstrip("/").encode())

    async def _do(self, method: Method[Any, Any], numbers: int = 1, /, **fields: Any) -> Any:
        mutation = pb.Mutation(client=CLIENT, request=self._request + 1)
        self._request += numbers
        request = _as_root(method.request(mutation=mutation, **fields))
        reply = await self._call(method, request)
        self.asked.append(Asked(method, request, reply))
        return reply

    async def run(self) -> None:
        """Each changes what a second run of it would meet: a repeated one must not find that out."""
        await self._names()
        await self._open_file()
        await self._attributes()
        await self._whole_files()
        await self._batch()

    async def _names(self) -> None:
        at = self._at
        await self._do(methods.MKDIR, place=at(""), mode=0o755)
        await self._do(methods.MKDIR, place=at("directory"), mode=0o700)
        await self._do(methods.CREATE, place=at("made"), mode=0o600, exclusive=True)
        await self._do(methods.SYMLINK, place=at("symlink"), target=b"made")
        await self._do(methods.MKNOD, place=at("fifo"), type=pb.FIFO, mode=0o600)
        await self._do(methods.LINK, source=at("made"), destination=at("linked"))
        await self._do(methods.RENAME, source=at("made"), destination=at("directory/renamed"))
        await self._do(methods.RENAME, source=at("fifo"), destination=at("symlink"), exchange=True)
        await self._do(methods.MKDIR, place=at("emptied"), mode=0o755)
        await self._do(methods.REMOVE, place=at("emptied"), kind=pb.ONLY_DIRECTORY)
        await self._do(methods.CREATE, place=at("removed"), mode=0o600)
        await self._do(methods.REMOVE, place=at("removed"), kind=pb.NOT_DIRECTORY)

    async def _open_file(self) -> None:
        at = self._at
        file = (await self._do(methods.CREATE, place=at("file"), mode=0o644, session=_FIRST)).inode
        await self._do(methods.RESERVE, inode=file.inode, session=_FIRST, length=1000)
        await self._do(methods.RESERVE, inode=file.inode, session=_FIRST, length=1000)
        await self._do(methods.SYNC, inode=file.inode, length_hint=5000, attempted_end=5000, written=True)
        lock = pb.FileLock(kind=pb.RECORD_LOCK, type=pb.EXCLUSIVE, owner=1, start=0, end=9)
        await self._do(methods.LOCK, inode=file.inode, lock=lock)
        part = pb.FileLock(kind=pb.RECORD_LOCK, type=pb.UNLOCK, owner=1, start=3, end=5)
        await self._do(methods.LOCK, inode=file.inode, lock=part)
        await self._do(methods.CLOSE, inode=file.inode, session=_FIRST, length_hint=6000, written=True)
        await self._do(methods.OPEN, place=at("file"), session=_SECOND)
        await self._do(methods.TRUNCATE, place=at("file"), length=100)
        await self._do(methods.TRUNCATE, place=at("file"), length=7000)

    async def _attributes(self) -> None:
        at = self._at
        await self._do(methods.SET_ATTR, place=at("file"), mode=0o640, mtime_now=True)
        await self._do(methods.SET_XATTR, place=at("file"), name=b"user.a", value=b"1", create=True)
        await self._do(methods.SET_XATTR, place=at("file"), name=b"user.b", value=b"2", create=True)
        await self._do(methods.REMOVE_XATTR, place=at("file"), name=b"user.a")
        await self._do(methods.SET_LAYOUT, place=at("directory"), layout=pb.Layout(chunk_bytes=1 << 16))
        await self._do(methods.SET_QUOTA, place=at("directory"), limit_inodes=10)
        await self._do(methods.SET_TRASH, place=at("directory"), trash_s=3600)
        await self._do(methods.FSCK_RECHECK, repair=True, subjects=[pb.FsckSubject(inode=1)])

    async def _whole_files(self) -> None:
        made = await self._do(methods.PRECREATE, place=self._at("whole"), count=2, session=_FIRST)
        for inode, name in zip(made.inodes, ("whole", "removed"), strict=True):
            await self._do(
                methods.PUBLISH, inode=inode.inode, session=_FIRST, place=self._at(name), mode=0o644, length=7
            )
        await self._do(methods.REMOVE, place=self._at("removed"))

    async def _batch(self) -> None:
        """The last one is no such thing any more when it is asked for again."""
        changes = [
            pb.Change(create=pb.CreateRequest(place=self._at("many-1"), mode=0o600, exclusive=True)),
            pb.Change(remove=pb.RemoveRequest(place=self._at("linked"))),
            pb.Change(create=pb.CreateRequest(place=self._at("many-2"), mode=0o600, exclusive=True)),
            pb.Change(rename=pb.RenameRequest(source=self._at("many-1"), destination=self._at("many-3"))),
        ]
        await self._do(methods.BATCH, len(changes), changes=changes)
        await self._do(methods.REMOVE, place=self._at("many-2"))

    async def repeat(self, call: Call) -> list[str]:
        """Ask for all of it again, the last first; what answers differently."""
        wrong = []
        for one in reversed(self.asked):
            try:
                reply = await call(one.method, one.request)
            except OSError as error:
                reply = error
            if reply != one.reply:
                wrong.append(f"{one.method.name}: {reply!r} instead of {one.reply!r}")
        return wrong

    async def state(self, call: Call) -> list[Any]:
        """All that can be seen of the directory."""
        found: list[Any] = []
        waiting = [pb.Place(path=self._top.encode())]
        while waiting:
            place = waiting.pop()
            listed = await call(methods.LIST, _as_root(pb.ListRequest(place=place, attributes=True)))
            found.append((await call(methods.STAT, _as_root(pb.StatRequest(place=place))), listed))
            waiting += [pb.Place(base=one.inode) for one in listed.entries if one.type == pb.DIRECTORY]
        file = await call(methods.STAT, _as_root(pb.StatRequest(place=self._at("file"))))
        names = await call(methods.LIST_XATTR, _as_root(pb.ListXattrRequest(place=self._at("file"))))
        probe = pb.FileLock(kind=pb.RECORD_LOCK, type=pb.EXCLUSIVE, owner=2, start=0, end=100)
        held = await call(methods.QUERY_LOCK, pb.QueryLockRequest(client=CLIENT, inode=file.inode.inode, lock=probe))
        return [*found, file, names, held]
