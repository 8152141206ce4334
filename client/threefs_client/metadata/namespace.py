"""Operations on names: all calls of the meta service except those for open files."""

import os
import stat
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress

from threefs import layout as layouts
from threefs.errors import InvalidArgument, NotADirectory, NotFound, ProtocolError, ThreefsError, error_of
from threefs.paging import next_place
from threefs.rpc import methods
from threefs.rpc.methods import Method, Rep, Req
from threefs.wire import meta_pb2 as pb
from threefs_client import attributes, paths
from threefs_client.attributes import Attributes, Entry, Space, Usage
from threefs_client.context import ClientContext
from threefs_client.metadata import bulk_changes
from threefs_client.metadata.quotas import Quotas
from threefs_client.metadata.trash import Trash
from threefs_client.metadata.walking import Step, Walk
from threefs_client.paths import Path

_PAGE = 1024
_STAT_MANY = 1024
_ABSENT = (NotFound.code, NotADirectory.code)


class NamespaceApi:
    def __init__(self, context: ClientContext, caller: pb.Caller | None = None) -> None:
        self.context = context
        self.caller = context.caller if caller is None else caller  # whose permissions are checked

    async def _call(self, method: Method[Req, Rep], request: Req) -> Rep:
        return await self.context.meta.call(
            method, request, timeout_s=self.context.options.timeout_s, caller=self.caller
        )

    @property
    def quotas(self) -> Quotas:
        """Limits of trees and users."""
        return Quotas(self)

    @property
    def trash(self) -> Trash:
        """Removed files, and how long they are kept."""
        return Trash(self)

    # ---- many at once ----

    async def create_many(
        self,
        names: Sequence[Path],
        *,
        permissions: int = 0o644,
        parents: bool = False,
        exclusive: bool = True,
        chunk_bytes: int = 0,
        stripe: int = 0,
    ) -> Sequence[Attributes | ThreefsError]:
        """Create empty files, any number of them, in no particular order. Returns the attributes or the error of each.

        Each file is created once or not at all, independently of the others. `parents` creates missing directories.
        Without `exclusive` an existing file is no error. `chunk_bytes` and `stripe` are those of `open`.
        """
        request = create_request(permissions, parents, exclusive, chunk_bytes, stripe)
        wanted = []
        for name in names:
            change = pb.Change(create=request)
            change.create.place.path = paths.encode(name)
            wanted.append(change)
        outcomes = await bulk_changes.change_many(
            self.context.meta, self._send_changes, self._send_change_alone, wanted
        )
        return [one if isinstance(one, ThreefsError) else Attributes(one.create.inode) for one in outcomes]

    async def remove_many(self, names: Sequence[Path]) -> Sequence[ThreefsError | None]:
        """Remove files, links and empty directories, any number of them, in no particular order. Returns None or the
        error of each."""
        wanted = [pb.Change(remove=pb.RemoveRequest(place=paths.place(name))) for name in names]
        outcomes = await bulk_changes.change_many(
            self.context.meta, self._send_changes, self._send_change_alone, wanted
        )
        return [one if isinstance(one, ThreefsError) else None for one in outcomes]

    async def _send_changes(self, request: pb.BatchRequest) -> pb.BatchReply:
        return await self._call(methods.BATCH, request)

    async def _send_change_alone(self, change: pb.Change) -> pb.Changed:
        if change.HasField("remove"):
            change.remove.mutation.CopyFrom(self.context.meta.mutation())
            await self._call(methods.REMOVE, change.remove)
            return pb.Changed()
        change.create.mutation.CopyFrom(self.context.meta.mutation())
        return pb.Changed(create=await self._call(methods.CREATE, change.create))

    # ---- reading ----

    async def stat(self, path: Path, *, follow: bool = True) -> Attributes:
        """The attributes of a path. Raises NotFound, NotADirectory, TooManySymlinks."""
        reply = await self._call(methods.STAT, pb.StatRequest(place=paths.place(path), follow=follow))
        return Attributes(reply.inode)

    async def stat_many(self, names: Sequence[Path], *, follow: bool = True) -> list[Attributes | None]:
        """The attributes of each path, None where nothing exists. Any other error is raised."""
        return [None if inode is None else Attributes(inode) for inode in await self.stat_inodes(names, follow)]

    async def stat_inodes(self, names: Sequence[Path], follow: bool = True) -> list[pb.Inode | None]:
        """As `stat_many`, with the messages of the meta service."""
        found: list[pb.Inode | None] = []
        for start in range(0, len(names), _STAT_MANY):
            part = names[start : start + _STAT_MANY]
            request = pb.BatchStatRequest(follow=follow, paths=map(paths.encode, part))
            reply = await self._call(methods.BATCH_STAT, request)
            if len(reply.inodes) != len(part) or any(error.number >= len(part) for error in reply.errors):
                raise ProtocolError(f"the meta service gave {len(reply.inodes)} answers to {len(part)} paths")
            found += reply.inodes
            for error in reply.errors:
                if error.code not in _ABSENT:
                    raise error_of(error.code, error.message or paths.display(part[error.number]))
                found[start + error.number] = None
        return found

    async def exists(self, path: Path) -> bool:
        """True also for a directory; False for a symbolic link to nowhere."""
        return (await self.stat_inodes([path]))[0] is not None

    async def access(self, path: Path, wanted: int, *, follow: bool = True) -> Attributes:
        """Raises AccessDenied unless everything in `wanted` is permitted: a sum of os.R_OK, os.W_OK, os.X_OK."""
        request = pb.AccessRequest(place=paths.place(path), follow=follow, wanted=wanted)
        return Attributes((await self._call(methods.ACCESS, request)).inode)

    async def list_page(
        self, path: Path, after: str = "", limit: int = _PAGE, *, with_attributes: bool = False
    ) -> tuple[list[Entry], bool]:
        """(entries by name behind `after`, whether there are more)."""
        request = pb.ListRequest(
            place=paths.place(path), after=paths.encode(after), limit=limit, attributes=with_attributes
        )
        reply = await self._call(methods.LIST, request)
        if reply.more:
            end = reply.entries[-1].name if reply.entries else None
            next_place(f"entries of {paths.display(path)}", request.after, end)
        return [attributes.of_entry(entry) for entry in reply.entries], reply.more

    async def list(self, path: Path, *, with_attributes: bool = False) -> AsyncIterator[Entry]:
        """The entries of a directory by name, fetched in pages."""
        after, more = "", True
        while more:
            page, more = await self.list_page(path, after, with_attributes=with_attributes)
            for entry in page:
                yield entry
            after = page[-1].name if page else ""

    async def walk(self, top: Path, *, with_attributes: bool = True) -> AsyncIterator[Step]:
        """(path of a directory, its directories, its other entries), from the top down. Symbolic links are not
        followed.

        A large directory comes in several steps, in the order of names; the trees below the directories of one step
        come before the next step. To leave a directory out, remove it from the list of its step. Directories that no
        longer exist when they are reached are left out, too.
        """
        walk = Walk(top)
        while (page := walk.next_page()) is not None:
            try:
                entries, more = await self.list_page(*page, with_attributes=with_attributes)
            except (NotFound, NotADirectory):
                if not walk.skip_missing():
                    raise
                continue
            yield walk.take_page(entries, more)

    async def usage(self, top: Path) -> Usage:
        """Counts and sums over a tree, as `du` shows."""
        first = await self.stat(top, follow=False)
        if not first.is_directory:
            return _usage_of([first])
        found: dict[int, Attributes] = {first.inode: first}
        async for _, directories, others in self.walk(top):  # it leaves out what is removed meanwhile
            for entry in (*directories, *others):
                assert entry.attributes is not None, "attributes were asked for"
                found[entry.inode] = entry.attributes
        return _usage_of(found.values())

    async def readlink(self, path: Path) -> str:
        """The target of a symbolic link. Raises InvalidArgument for anything else."""
        found = await self.stat(path, follow=False)
        if not found.is_symlink:
            raise InvalidArgument(f"{paths.display(path)} is not a symbolic link")
        return found.target

    async def statfs(self) -> Space:
        """The room of the whole cluster."""
        return attributes.of_space(await self._call(methods.STAT_FS, pb.StatFsRequest()))

    # ---- changing ----

    async def create(
        self,
        path: Path,
        *,
        permissions: int = 0o644,
        parents: bool = False,
        exclusive: bool = True,
        chunk_bytes: int = 0,
        stripe: int = 0,
    ) -> Attributes:
        """Create an empty file without opening it. The arguments are those of `create_many`."""
        request = create_request(permissions, parents, exclusive, chunk_bytes, stripe)
        request.mutation.CopyFrom(self.context.meta.mutation())
        request.place.path = paths.encode(path)
        return Attributes((await self._call(methods.CREATE, request)).inode)

    async def mkdir(self, path: Path, *, mode: int = 0o755, parents: bool = False) -> Attributes:
        """Create a directory. With `parents`, missing directories above it are created too, and an existing one is no
        error."""
        request = pb.MkdirRequest(
            mutation=self.context.meta.mutation(),
            place=paths.place(path),
            mode=checked_permissions(mode),
            uid=os.geteuid(),
            gid=os.getegid(),
            parents=parents,
        )
        return Attributes((await self._call(methods.MKDIR, request)).inode)

    async def remove(self, path: Path, *, recursive: bool = False) -> None:
        """Remove a file, a link or an empty directory; with `recursive` a directory with everything below it.

        For root this is one step. For a user the tree is removed entry by entry, as by `rm -r`, after a check that the
        user may change all its directories: if not, AccessDenied names one of them, and nothing is removed.
        """
        if recursive and self.caller.uid:
            await self._remove_piecewise(path)
        else:
            await self._remove(path, pb.ANYTHING, recursive)

    async def _remove_piecewise(self, top: Path) -> None:
        """Remove a tree entry by entry, so that permissions are checked for each. What is gone already is left out."""
        if (await self.stat(top, follow=False)).is_directory:
            await self._check_removable(top)
            directories: dict[str, None] = {}
            async for directory, _, others in self.walk(top, with_attributes=False):
                directories[directory] = None
                for entry in others:
                    with suppress(NotFound):
                        await self.unlink(paths.join(directory, entry.name))
            whole, *below = directories
            for directory in reversed(below):
                with suppress(NotFound):
                    await self.rmdir(directory)
            await self.rmdir(whole)
        else:
            await self.unlink(top)

    async def _check_removable(self, top: Path) -> None:
        """Raises AccessDenied. Permissions may change afterwards, and sticky directories are not examined."""
        await self.access(paths.parent(top), os.W_OK | os.X_OK)
        checked = ""
        async for directory, below, others in self.walk(top, with_attributes=False):
            if (below or others) and directory != checked:  # an empty one is removed from the directory above
                checked = directory
                with suppress(NotFound):
                    await self.access(directory, os.W_OK | os.X_OK)

    async def unlink(self, path: Path) -> None:
        """Remove anything but a directory."""
        await self._remove(path, pb.NOT_DIRECTORY)

    async def rmdir(self, path: Path) -> None:
        """Remove an empty directory."""
        await self._remove(path, pb.ONLY_DIRECTORY)

    async def _remove(self, path: Path, kind: pb.RemoveKind, recursive: bool = False) -> None:
        request = pb.RemoveRequest(
            mutation=self.context.meta.mutation(), place=paths.place(path), recursive=recursive, kind=kind
        )
        await self._call(methods.REMOVE, request)

    async def mknod(self, path: Path, mode: int, device: int = 0) -> Attributes:
        """Create a FIFO, a socket, a device or an empty file. `mode` has the bits of the type, as for os.mknod."""
        kind = attributes.type_of(mode)
        request = pb.MknodRequest(
            mutation=self.context.meta.mutation(),
            place=paths.place(path),
            type=kind,
            mode=checked_permissions(stat.S_IMODE(mode)),
            rdev=device,
            uid=os.geteuid(),
            gid=os.getegid(),
        )
        return Attributes((await self._call(methods.MKNOD, request)).inode)

    async def exchange(self, one: Path, other: Path) -> None:
        """Exchange two entries of any kinds, atomically."""
        request = pb.RenameRequest(
            mutation=self.context.meta.mutation(),
            source=paths.place(one),
            destination=paths.place(other),
            exchange=True,
        )
        await self._call(methods.RENAME, request)

    async def rename(
        self, source: Path, destination: Path, *, replace: bool = True, always_moves: bool = False
    ) -> Attributes:
        """Rename, atomically. An existing destination is replaced, unless `replace` is false (then AlreadyExists). Of
        two names of one file both stay, as with `os.rename`; with `always_moves` the source goes, as with `mv`."""
        request = pb.RenameRequest(
            mutation=self.context.meta.mutation(),
            source=paths.place(source),
            destination=paths.place(destination),
            no_replace=not replace,
            always_moves=always_moves,
        )
        return Attributes((await self._call(methods.RENAME, request)).inode)

    async def symlink(self, target: Path, path: Path) -> Attributes:
        """Create the symbolic link `path` to `target`, which need not exist."""
        request = pb.SymlinkRequest(
            mutation=self.context.meta.mutation(),
            place=paths.place(path),
            target=paths.encode(target),
            uid=os.geteuid(),
            gid=os.getegid(),
        )
        return Attributes((await self._call(methods.SYMLINK, request)).inode)

    async def hard_link(self, source: Path, destination: Path) -> Attributes:
        """Create `destination` as another name of the file `source`."""
        request = pb.LinkRequest(
            mutation=self.context.meta.mutation(), source=paths.place(source), destination=paths.place(destination)
        )
        return Attributes((await self._call(methods.LINK, request)).inode)

    async def chmod(self, path: Path, mode: int, *, follow: bool = True) -> Attributes:
        """Set the permission bits."""
        return await self._set_attributes(path, follow, mode=checked_permissions(mode))

    async def chown(self, path: Path, uid: int, gid: int, *, follow: bool = True) -> Attributes:
        """Set owner and group. An id of -1 stays as it is."""
        wanted = {name: value for name, value in (("uid", uid), ("gid", gid)) if value != -1}
        if any(not 0 <= value < 1 << 32 for value in wanted.values()):
            raise InvalidArgument(f"user and group ids are 32-bit numbers: {uid}, {gid}")
        return await self._set_attributes(path, follow, **wanted)

    async def touch(self, path: Path, *, follow: bool = True) -> Attributes:
        """Set both times to now. A user who may write the file may do this, too."""
        return await self._set_attributes(path, follow, atime_now=True, mtime_now=True)

    async def utime(self, path: Path, atime_ns: int | None, mtime_ns: int | None, *, follow: bool = True) -> Attributes:
        """Set the times, in nanoseconds since 1970; None leaves one as it is."""
        wanted = {name: at for name, at in (("atime_ns", atime_ns), ("mtime_ns", mtime_ns)) if at is not None}
        if any(not -(1 << 63) <= at < 1 << 63 for at in wanted.values()):
            raise InvalidArgument(f"times are 64-bit numbers of nanoseconds: {atime_ns}, {mtime_ns}")
        if atime_ns is not None:
            await self.context.atime_reporter.before_setting()
        return await self._set_attributes(path, follow, **wanted)

    async def _set_attributes(self, path: Path, follow: bool, **values: int) -> Attributes:
        request = pb.SetAttrRequest(mutation=self.context.meta.mutation(), place=paths.place(path), follow=follow)
        for name, value in values.items():
            setattr(request, name, value)
        return Attributes((await self._call(methods.SET_ATTR, request)).inode)

    async def truncate(self, path: Path, length: int) -> Attributes:
        """Truncate a file to `length` bytes, or extend it with zeros."""
        layouts.check_range(layouts.MAX_CHUNK_BYTES, 0, length)
        request = pb.TruncateRequest(mutation=self.context.meta.mutation(), place=paths.place(path), length=length)
        return Attributes((await self._call(methods.TRUNCATE, request)).inode)

    # ---- extended attributes ----

    async def getxattr(self, path: Path, name: Path, *, follow: bool = True) -> bytes:
        """The value of an extended attribute. Raises NoAttribute."""
        request = pb.GetXattrRequest(place=paths.place(path), name=paths.encode(name), follow=follow)
        return (await self._call(methods.GET_XATTR, request)).value

    async def listxattr(self, path: Path, *, follow: bool = True) -> Sequence[str]:
        """The names of the extended attributes."""
        request = pb.ListXattrRequest(place=paths.place(path), follow=follow)
        return [paths.decode(name) for name in (await self._call(methods.LIST_XATTR, request)).names]

    async def setxattr(
        self, path: Path, name: Path, value: bytes, *, create: bool = False, replace: bool = False, follow: bool = True
    ) -> None:
        """Set an extended attribute. With `create` it must not exist (AlreadyExists), with `replace` it must
        (NoAttribute).

        Raises NoSpace, NotSupported, ResultTooLong."""
        request = pb.SetXattrRequest(
            mutation=self.context.meta.mutation(),
            place=paths.place(path),
            follow=follow,
            name=paths.encode(name),
            value=bytes(value),
            create=create,
            replace=replace,
        )
        await self._call(methods.SET_XATTR, request)

    async def removexattr(self, path: Path, name: Path, *, follow: bool = True) -> None:
        """Remove an extended attribute. Raises NoAttribute."""
        request = pb.RemoveXattrRequest(
            mutation=self.context.meta.mutation(), place=paths.place(path), follow=follow, name=paths.encode(name)
        )
        await self._call(methods.REMOVE_XATTR, request)

    async def set_layout(self, path: Path, *, chunk_bytes: int = 0, stripe: int = 0, table_id: int = 0) -> Attributes:
        """Set the layout that new files below a directory get. A value of 0 is inherited from above."""
        request = pb.SetLayoutRequest(
            mutation=self.context.meta.mutation(),
            place=paths.place(path),
            layout=requested_layout(chunk_bytes, stripe, table_id),
        )
        return Attributes((await self._call(methods.SET_LAYOUT, request)).inode)


def create_request(permissions: int, parents: bool, exclusive: bool, chunk_bytes: int, stripe: int) -> pb.CreateRequest:
    """Raises InvalidArgument."""
    return pb.CreateRequest(
        mode=checked_permissions(permissions),
        uid=os.geteuid(),
        gid=os.getegid(),
        exclusive=exclusive,
        parents=parents,
        layout=requested_layout(chunk_bytes, stripe),
    )


def requested_layout(chunk_bytes: int, stripe: int, table_id: int = 0) -> pb.Layout | None:
    """Raises InvalidArgument. None when nothing is chosen."""
    if chunk_bytes:
        layouts.check_chunk_bytes(chunk_bytes)
    if not 0 <= stripe <= layouts.MAX_STRIPE:
        raise InvalidArgument(f"a stripe has 1 to {layouts.MAX_STRIPE} chains, not {stripe}")
    if not (chunk_bytes or stripe or table_id):
        return None
    return pb.Layout(chunk_bytes=chunk_bytes, stripe=stripe, table_id=table_id)


def checked_permissions(mode: int) -> int:
    """Raises InvalidArgument."""
    if not 0 <= mode <= 0o7777:
        raise InvalidArgument(f"permission bits go from 0 to 0o7777, not {mode:#o}")
    return mode


def _usage_of(found: Iterable[Attributes]) -> Usage:
    files = directories = symlinks = length = 0
    for item in found:
        files += item.is_file
        directories += item.is_directory
        symlinks += item.is_symlink
        length += item.length if item.is_file else 0
    return Usage(files, directories, symlinks, length)
