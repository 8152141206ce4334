"""What the kernel asks, answered by the cluster. Inode numbers are those of the cluster."""

import asyncio
import errno
import functools
import os
import stat
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import pyfuse3
import structlog
from threefs_client import paths
from threefs_client.link import Link

from threefs.errors import NotFound, PermissionDenied, ThreefsError
from threefs.rpc import methods
from threefs.rpc.methods import Method, Rep, Req
from threefs.wire import meta_pb2 as pb
from threefs_mount import callers, entries, errnos, open_files
from threefs_mount.callers import Context
from threefs_mount.listing import Listing
from threefs_mount.open_files import OpenFiles

_PAGE_ENTRIES = 1024
_CAPABILITY = b"security.capability"
_PERMISSIONS = 0o7777
#: A time that a program has set to "now" is at most so old when it comes to us.
_NOW_NS = 60 * 10**9
_RENAME_FLAGS = int(pyfuse3.RENAME_NOREPLACE) | int(pyfuse3.RENAME_EXCHANGE)

P = ParamSpec("P")
T = TypeVar("T")

_LOG = structlog.get_logger()


def answered(
    handler: Callable[Concatenate["Operations", P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["Operations", P], Coroutine[Any, Any, T]]:
    """The kernel waits for an answer to every request, so there must be one whatever happens."""

    @functools.wraps(handler)
    async def answering(self: "Operations", *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await handler(self, *args, **kwargs)
        except pyfuse3.FUSEError:
            raise
        except ThreefsError as error:
            number = errnos.of(error)
            if number in (errno.EIO, errno.ETIMEDOUT):
                _LOG.warning("a request failed", request=handler.__name__, error=str(error))
            raise pyfuse3.FUSEError(number) from None
        except Exception:
            _LOG.exception("a request failed", request=handler.__name__)
            raise pyfuse3.FUSEError(errno.EIO) from None

    return answering  # type: ignore[return-value]  # wraps() types a method as an object that is called


class Operations(pyfuse3.Operations):  # type: ignore[misc]
    """The handlers that pyfuse3 calls. It answers for those that are not here: the kernel does not ask again."""

    supports_dot_lookup = False
    enable_writeback_cache = False  # the kernel would believe its own lengths, and never see those of other clients
    enable_acl = True

    def __init__(self, link: Link, files: OpenFiles, cache_s: float, ready: Callable[[], None]) -> None:
        super().__init__()
        self._link = link
        self._files = files
        self._cache_s = cache_s
        self._ready = ready
        self._listings: dict[int, tuple[int, Listing[pb.Entry]]] = {}
        self._next_listing = 1

    def init(self) -> None:
        """The kernel has begun to ask; it goes on when we have returned."""
        asyncio.get_running_loop().call_soon(self._ready)

    async def _call(self, method: Method[Req, Rep], request: Req, context: Context | None = None) -> Rep:
        caller = None if context is None else callers.of(context)
        return await self._link.meta.call(method, request, timeout_s=self._link.options.timeout_s, caller=caller)

    def _mutation(self) -> pb.Mutation:
        return self._link.meta.mutation()

    def _entry(self, inode: pb.Inode) -> Any:
        return entries.entry(self._files.shown(inode), self._cache_s)

    # ---- looking ----

    @answered
    async def lookup(self, parent: int, name: bytes, context: Context) -> Any:
        try:
            reply = await self._call(methods.LOOKUP, pb.LookupRequest(parent=parent, name=name))
        except NotFound:
            return entries.absent()
        return self._entry(reply.inode)

    def forget(self, inodes: Sequence[tuple[int, int]]) -> None:
        """Nothing is kept for what the kernel knows: its numbers are ours."""

    @answered
    async def getattr(self, inode: int, context: Context) -> Any:
        return self._entry(await self._stat(inode))

    async def _stat(self, inode: int) -> pb.Inode:
        return (await self._call(methods.STAT, pb.StatRequest(place=paths.of_inode(inode)))).inode

    @answered
    async def readlink(self, inode: int, context: Context) -> bytes:
        found = await self._stat(inode)
        if found.type != pb.SYMLINK:
            raise pyfuse3.FUSEError(errno.EINVAL)
        return found.target

    @answered
    async def statfs(self, context: Context) -> Any:
        return entries.space(await self._call(methods.STAT_FS, pb.StatFsRequest()))

    # ---- directories ----

    @answered
    async def opendir(self, inode: int, context: Context) -> int:
        async def fetch(after: bytes) -> tuple[Sequence[pb.Entry], bool]:
            request = pb.ListRequest(place=paths.of_inode(inode), after=after, limit=_PAGE_ENTRIES, attributes=True)
            try:
                reply = await self._call(methods.LIST, request)
            except NotFound:  # it was removed while it is open
                return (), False
            return reply.entries, reply.more

        number = self._next_listing
        self._next_listing += 1
        self._listings[number] = (inode, Listing(fetch))
        return number

    @answered
    async def readdir(self, number: int, start: int, token: Any) -> None:
        """Positions 0 and 1 are "." and ".."; the entries follow."""
        inode, listing = self._listings[number]
        if start == 0:
            listing.restart()
        for position, name in enumerate((b".", b"..")):
            if position >= start and not pyfuse3.readdir_reply(token, name, _directory(inode), position + 1):
                return
        number = max(start - 2, 0)
        while True:
            number, rest = await listing.rest(number)
            if not rest:
                return
            for entry in rest:
                number += 1
                if not pyfuse3.readdir_reply(token, entry.name, self._entry(entry.attributes), number + 2):
                    return

    @answered
    async def releasedir(self, number: int) -> None:
        del self._listings[number]

    @answered
    async def fsyncdir(self, number: int, only_data: bool) -> None:
        """Every change of a directory was durable when it was answered."""

    # ---- names ----

    @answered
    async def mkdir(self, parent: int, name: bytes, mode: int, context: Context) -> Any:
        request = pb.MkdirRequest(
            mutation=self._mutation(),
            place=_place(parent, name),
            mode=mode & _PERMISSIONS,
        )
        return self._entry((await self._call(methods.MKDIR, request, context)).inode)

    @answered
    async def mknod(self, parent: int, name: bytes, mode: int, device: int, context: Context) -> Any:
        request = pb.MknodRequest(
            mutation=self._mutation(),
            place=_place(parent, name),
            type=entries.TYPES[stat.S_IFMT(mode) or stat.S_IFREG],
            mode=mode & _PERMISSIONS,
            rdev=device,
        )
        return self._entry((await self._call(methods.MKNOD, request, context)).inode)

    @answered
    async def symlink(self, parent: int, name: bytes, target: bytes, context: Context) -> Any:
        request = pb.SymlinkRequest(
            mutation=self._mutation(),
            place=_place(parent, name),
            target=target,
        )
        return self._entry((await self._call(methods.SYMLINK, request, context)).inode)

    @answered
    async def link(self, inode: int, parent: int, name: bytes, context: Context) -> Any:
        request = pb.LinkRequest(
            mutation=self._mutation(), source=paths.of_inode(inode), destination=_place(parent, name)
        )
        return self._entry((await self._call(methods.LINK, request, context)).inode)

    @answered
    async def unlink(self, parent: int, name: bytes, context: Context) -> None:
        await self._remove(parent, name, pb.NOT_DIRECTORY, context)

    @answered
    async def rmdir(self, parent: int, name: bytes, context: Context) -> None:
        await self._remove(parent, name, pb.ONLY_DIRECTORY, context)

    async def _remove(self, parent: int, name: bytes, kind: pb.RemoveKind, context: Context) -> None:
        request = pb.RemoveRequest(mutation=self._mutation(), place=_place(parent, name), kind=kind)
        await self._call(methods.REMOVE, request, context)

    @answered
    async def rename(
        self, parent: int, name: bytes, new_parent: int, new_name: bytes, flags: int, context: Context
    ) -> None:
        if flags & ~_RENAME_FLAGS:
            raise pyfuse3.FUSEError(errno.EINVAL)
        request = pb.RenameRequest(
            mutation=self._mutation(),
            source=_place(parent, name),
            destination=_place(new_parent, new_name),
            no_replace=bool(flags & int(pyfuse3.RENAME_NOREPLACE)),
            exchange=bool(flags & int(pyfuse3.RENAME_EXCHANGE)),
        )
        await self._call(methods.RENAME, request, context)

    # ---- attributes ----

    @answered
    async def setattr(self, inode: int, wanted: Any, fields: Any, number: int | None, context: Context) -> Any:
        found = None
        if fields.update_size:
            found = await self._truncate(inode, wanted.st_size, number, context)
        request = pb.SetAttrRequest(place=paths.of_inode(inode))
        if fields.update_mode:
            request.mode = wanted.st_mode & _PERMISSIONS
        if fields.update_uid:
            request.uid = wanted.st_uid
        if fields.update_gid:
            request.gid = wanted.st_gid
        if fields.update_atime:
            request.atime_ns = wanted.st_atime_ns
        if fields.update_mtime:
            request.mtime_ns = wanted.st_mtime_ns
            file = self._files.get(inode)
            if file is not None:
                await file.settle()  # or the end of the writes would set another time later
        if len(request.ListFields()) > 1:
            found = await self._set(request, context)
        return self._entry(found if found is not None else await self._stat(inode))

    async def _set(self, request: pb.SetAttrRequest, context: Context) -> pb.Inode:
        request.mutation.CopyFrom(self._mutation())
        try:
            return (await self._call(methods.SET_ATTR, request, context)).inode
        except PermissionDenied:
            repeated = await self._permitted(request)
            if repeated is None:
                raise
        repeated.mutation.CopyFrom(self._mutation())
        return (await self._call(methods.SET_ATTR, repeated, context if repeated.mtime_now else None)).inode

    async def _permitted(self, request: pb.SetAttrRequest) -> pb.SetAttrRequest | None:
        """What the kernel may have meant with something that is not permitted, and did not tell."""
        place = request.place
        names = {name for name in ("mode", "uid", "gid", "atime_ns", "mtime_ns") if request.HasField(name)}
        if names == {"mode"}:  # somebody has written: that takes set-user-id bits away from whoever owns the file
            mode = (await self._stat(place.base)).mode
            return (
                pb.SetAttrRequest(place=place, mode=request.mode) if request.mode == open_files.written(mode) else None
            )
        if names == {"atime_ns", "mtime_ns"} and request.atime_ns == request.mtime_ns:
            # A program may have given this moment, or said "now", which is permitted to all who may write.
            since_ns = self._link.clock.wall_ns() - request.mtime_ns
            if 0 <= since_ns < _NOW_NS:
                return pb.SetAttrRequest(place=place, atime_now=True, mtime_now=True)
        return None

    async def _truncate(self, inode: int, length: int, number: int | None, context: Context) -> pb.Inode:
        """Through an open handle: whoever has one may cut the file, whatever its mode says by now."""
        caller = callers.of(context)
        if number is not None:
            return await self._files.truncate(number, length, caller)
        file = self._files.get(inode)
        if file is not None:
            return await file.truncate(length, caller)
        request = pb.TruncateRequest(mutation=self._mutation(), place=paths.of_inode(inode), length=length)
        return (await self._call(methods.TRUNCATE, request, context)).inode

    # ---- extended attributes, and ACLs, which come as such ----

    @answered
    async def getxattr(self, inode: int, name: bytes, context: Context) -> bytes:
        file = self._files.get(inode)
        if name == _CAPABILITY and file is not None and not file.inode.xattr_bytes:
            raise pyfuse3.FUSEError(errno.ENODATA)  # the kernel asks for it before every write
        request = pb.GetXattrRequest(place=paths.of_inode(inode), name=name)
        return (await self._call(methods.GET_XATTR, request, context)).value

    @answered
    async def listxattr(self, inode: int, context: Context) -> Sequence[bytes]:
        return (await self._call(methods.LIST_XATTR, pb.ListXattrRequest(place=paths.of_inode(inode)), context)).names

    @answered
    async def setxattr(self, inode: int, name: bytes, value: bytes, context: Context) -> None:
        request = pb.SetXattrRequest(mutation=self._mutation(), place=paths.of_inode(inode), name=name, value=value)
        self._learn((await self._call(methods.SET_XATTR, request, context)).inode)

    @answered
    async def removexattr(self, inode: int, name: bytes, context: Context) -> None:
        request = pb.RemoveXattrRequest(mutation=self._mutation(), place=paths.of_inode(inode), name=name)
        self._learn((await self._call(methods.REMOVE_XATTR, request, context)).inode)

    def _learn(self, inode: pb.Inode) -> None:
        file = self._files.get(inode.inode)
        if file is not None:
            file.learn(inode)

    # ---- files ----

    @answered
    async def create(self, parent: int, name: bytes, mode: int, flags: int, context: Context) -> tuple[Any, Any]:
        request = pb.CreateRequest(
            mutation=self._mutation(),
            place=_place(parent, name),
            mode=mode & _PERMISSIONS,
            exclusive=bool(flags & os.O_EXCL),
            truncate=bool(flags & os.O_TRUNC),
            access=open_files.access_of(flags),
        )
        number, inode = await self._files.create(request, flags, callers.of(context))
        return pyfuse3.FileInfo(fh=number, keep_cache=False), entries.entry(inode, self._cache_s)

    @answered
    async def open(self, inode: int, flags: int, context: Context) -> Any:
        number, keep = await self._files.open(inode, flags, callers.of(context))
        return pyfuse3.FileInfo(fh=number, keep_cache=keep)

    @answered
    async def read(self, number: int, offset: int, size: int) -> memoryview:
        return await self._files.handle(number).file.read(offset, size)

    @answered
    async def write(self, number: int, offset: int, data: bytes) -> int:
        await self._files.write(number, offset, data)
        return len(data)

    @answered
    async def flush(self, number: int) -> None:
        """A descriptor is closed: from now on others see what was written (close-to-open)."""
        handle = self._files.handle(number)
        if handle.writable:
            await handle.file.settle()

    @answered
    async def fsync(self, number: int, only_data: bool) -> None:
        await self._files.handle(number).file.settle()

    @answered
    async def release(self, number: int) -> None:
        await self._files.release(number)


def _place(parent: int, name: bytes) -> pb.Place:
    return pb.Place(base=parent, path=name)


def _directory(inode: int) -> Any:
    shown = pyfuse3.EntryAttributes()
    shown.st_ino = inode
    shown.st_mode = stat.S_IFDIR
    shown.entry_timeout = shown.attr_timeout = 0
    return shown
