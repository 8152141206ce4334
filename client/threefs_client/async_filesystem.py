"""The file system for asyncio. The blocking one (`blocking/filesystem.py`) delegates to it on a background loop."""

import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from itertools import accumulate
from types import TracebackType
from typing import Any

import numpy as np

from threefs import layout as layouts
from threefs.errors import AlreadyExists, InvalidArgument, IsADirectory, Retry, StaleFence, ThreefsError
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_client import addresses, modes, options, paths
from threefs_client.async_file import AsyncFile
from threefs_client.attributes import Attributes
from threefs_client.byte_view import byte_view
from threefs_client.context import ClientContext, connect
from threefs_client.credentials import caller_of, mode_permits_read
from threefs_client.data import chunk_checksums, copy_range, reads
from threefs_client.data.chunk_checksums import ChunkChecksum
from threefs_client.data.handles import Handle
from threefs_client.data.hole_retry import HoleRetry
from threefs_client.data.reads import ReadFile
from threefs_client.data.whole_files import NewFile, WholeFileWriter
from threefs_client.exit_flush import AsyncOpenFiles
from threefs_client.metadata.namespace import NamespaceApi, checked_permissions, requested_layout
from threefs_client.modes import Mode

Path = paths.Path
#: (path or open file, offset, length) in bytes
ReadRow = tuple[Any, int, int]
#: (file open for writing, offset, buffer)
WriteRow = tuple[Any, int, Any]


async def connect_async(url: str, **chosen: Any) -> "AsyncFileSystem":
    """Connect to the cluster at "threefs://host:port". Keyword arguments are the fields of Options.

    Raises InvalidArgument for a bad address or option, Unavailable when no manager answers there.
    """
    fs = AsyncFileSystem(await connect(addresses.parse(url), options.make(**chosen)))
    await fs.open_files.close_with_loop()
    return fs


class AsyncFileSystem(NamespaceApi):
    """All operations, for one event loop. Paths are absolute, from the root of the cluster."""

    def __init__(self, context: ClientContext, caller: pb.Caller | None = None) -> None:
        super().__init__(context, caller)
        self.open_files = AsyncOpenFiles()

    def acting_as(self, uid: int, gid: int, groups: Sequence[int] = ()) -> "AsyncFileSystem":
        """The same connection with the permissions of another user. Raises InvalidArgument."""
        other = AsyncFileSystem(self.context, caller_of(uid, gid, groups))
        other.open_files = self.open_files
        return other

    async def close(self) -> None:
        """Close the files that are open for writing, and drop the connections. Other files fail from then on."""
        try:
            await self.open_files.close_all()
        finally:
            await self.context.close()

    async def __aenter__(self) -> "AsyncFileSystem":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # ---- files ----

    async def open(
        self,
        path: Path,
        mode: str = "rb",
        *,
        permissions: int = 0o644,
        parents: bool = False,
        chunk_bytes: int = 0,
        stripe: int = 0,
    ) -> AsyncFile:
        """Open a file. Modes are those of the built-in `open`, binary only (with "b"); "rb" by default.

        For a new file, `parents` creates missing directories; `chunk_bytes` and `stripe` set its layout (0: inherited).
        """
        parsed = modes.parse(mode)
        if parsed.text:
            raise InvalidArgument(f'asyncio files are binary: add a "b" to the mode {mode!r}')
        layout = requested_layout(chunk_bytes, stripe)
        return await self.open_as(path, parsed, checked_permissions(permissions), parents, layout)

    async def open_as(
        self,
        path: Path,
        mode: Mode,
        permissions: int,
        parents: bool,
        layout: pb.Layout | None,
        *,
        unnamed: bool = False,
    ) -> AsyncFile:
        """As `open`, with a parsed mode and checked arguments. If `unnamed`, `path` names the directory. Raises
        ValueError if this object is being closed."""
        self.open_files.check_open()
        session = self.context.random.token(16) if mode.writable else b""
        if not session:
            return self._file((await self._open(path, mode, session)).inode, mode, path)
        lease, find = self.context.lease, partial(self._inode_number, path)
        await lease.acquire()
        try:
            if mode.create:
                request = self._create_request(path, mode, permissions, parents, layout, session, unnamed)
                find = partial(self._created_inode, request) if unnamed else find
                reply: pb.CreateReply | pb.OpenReply = await self._call(methods.CREATE, request)
            else:
                reply = await self._open(path, mode, session)
            lease.granted(reply.lease)
            file = self._file(reply.inode, mode, path, session, reply.lease)
            file.handle.over_quota = reply.over_quota
            return file
        except BaseException as error:
            if not isinstance(error, ThreefsError) or error.retry is Retry.UNKNOWN:
                self.context.session_closer.close_if_opened(find, session, self.caller)
            lease.release()
            raise

    async def _inode_number(self, path: Path) -> int:
        reply = await self._call(methods.STAT, pb.StatRequest(place=paths.place(path), follow=True))
        return reply.inode.inode

    async def _created_inode(self, request: pb.CreateRequest) -> int:
        """A repeat makes no second file."""
        return (await self._call(methods.CREATE, request)).inode.inode

    async def create_unnamed(
        self, directory: Path, *, permissions: int = 0o600, chunk_bytes: int = 0, stripe: int = 0
    ) -> AsyncFile:
        """Create a file without a name, open as with "wb+" (O_TMPFILE). It is removed when it is closed or this process
        dies, unless `link_file` has given it a name. It inherits from the directory like a file that is created in
        it."""
        mode = modes.parse("w+b")
        layout = requested_layout(chunk_bytes, stripe)
        return await self.open_as(directory, mode, checked_permissions(permissions), False, layout, unnamed=True)

    async def link_file(self, file: Any, destination: Path) -> Attributes:
        """Give an open file a name, or another one. All its writes are durable, and visible under the name at once.

        Raises AlreadyExists; NotFound for a file whose last name was removed.
        """
        opened = unwrap_file(file)
        if opened is None:
            raise InvalidArgument("link_file needs an open file; for a path use hard_link")
        await opened.flush()
        request = pb.LinkRequest(
            mutation=self.context.meta.mutation(),
            source=paths.inode_place(opened.handle.inode),
            destination=paths.place(destination),
        )
        return Attributes((await self._call(methods.LINK, request)).inode)

    def _check_file(self, inode: pb.Inode, path: Path) -> None:
        if inode.type == pb.DIRECTORY:
            raise IsADirectory(f"{paths.display(path)} is a directory")
        if inode.type != pb.FILE:
            raise InvalidArgument(f"{paths.display(path)} is not a file")

    def _file(self, inode: pb.Inode, mode: Mode, path: Path, session: bytes = b"", lease: int = 0) -> AsyncFile:
        self._check_file(inode, path)
        file = AsyncFile(Handle(self.context, inode, session, lease, self.caller), mode, paths.display(path))
        if session:
            file.on_closed = self.open_files.discard
            self.open_files.add(file)
        return file

    async def _open(self, path: Path, mode: Mode, session: bytes) -> pb.OpenReply:
        request = pb.OpenRequest(place=paths.place(path), session=session, access=mode.access)
        if session:
            request.mutation.CopyFrom(self.context.meta.mutation())
        return await self._call(methods.OPEN, request)

    def _create_request(
        self,
        path: Path,
        mode: Mode,
        permissions: int,
        parents: bool,
        layout: pb.Layout | None,
        session: bytes,
        unnamed: bool,
    ) -> pb.CreateRequest:
        return pb.CreateRequest(
            mutation=self.context.meta.mutation(),
            place=paths.place(path),
            mode=permissions,
            uid=os.geteuid(),
            gid=os.getegid(),
            exclusive=mode.exclusive,
            truncate=mode.truncate,
            parents=parents,
            layout=layout,
            session=session,
            access=mode.access,
            unnamed=unnamed,
        )

    # ---- batches ----

    async def read_batch(
        self, rows: Sequence[ReadRow], into: Any = None, *, timeout_s: float | None = None
    ) -> list[memoryview]:
        """Read (path or open file, offset, length) rows, in one request per storage process.

        Returns a view per row, shorter than requested only at the end of the file. Without `into`, views may share a
        buffer. `into` is one buffer, filled row after row as if each had its full length, or one buffer per row.
        """
        deadline = self.context.deadline(timeout_s)
        rows = rows if isinstance(rows, list | tuple) else list(rows)
        files = await self._read_files(dict.fromkeys(row[0] for row in rows))
        for file in files.values():
            self.context.atime_reporter.record_read(file)
        places = None if into is None else reads.destinations(rows, into)
        try:
            return await self._read_rows(rows, files, places, deadline)
        except ThreefsError as error:
            names = {file.inode: _shown_key(key) for key, file in files.items()}
            raise paths.with_file_names(error, names) from None

    async def _read_rows(
        self, rows: Sequence[ReadRow], files: dict[Any, ReadFile], places: list[memoryview] | None, deadline: float
    ) -> list[memoryview]:
        changes = {key: file.change for key, file in files.items()}
        result = await self.context.reader.read_batch(rows, files, places, deadline)
        if result is None:
            return await self._read_any(rows, files, places, deadline)
        views, holes = result
        return await self._reread_holes(rows, files, views, holes, changes) if holes else views

    async def _read_any(
        self, rows: Sequence[ReadRow], files: dict[Any, ReadFile], places: list[memoryview] | None, deadline: float
    ) -> list[memoryview]:
        """Read rows of any kind: empty ones, across chunks, beyond the known end."""
        for key, offset, length in rows:
            layouts.check_range(files[key].layout.chunk_bytes, offset, length)
        await self._refresh_files(
            {id(files[k]): files[k] for k, at, size in rows if at + size > files[k].length}.values()
        )
        lengths = [max(0, min(size, files[key].length - at)) for key, at, size in rows]
        if places is None:
            whole = np.empty(sum(lengths), np.uint8).data
            ends = accumulate(lengths)
            views = [whole[end - size : end] for end, size in zip(ends, lengths, strict=True)]
        else:
            views = [place[:size] for place, size in zip(places, lengths, strict=True)]
        parts = [(files[key], at, view) for (key, at, _), view in zip(rows, views, strict=True) if len(view)]
        changes = {key: file.change for key, file in files.items()}
        if await self.context.reader.read_into(parts, deadline):
            return await self._reread_holes(rows, files, views, range(len(rows)), changes)
        return views

    async def _reread_holes(
        self,
        rows: Sequence[ReadRow],
        files: dict[Any, ReadFile],
        views: list[memoryview],
        holes: Iterable[int],
        changes: dict[Any, int],
    ) -> list[memoryview]:
        """Check the holes that a read has found: another client may be truncating the file, or appending to it. Then
        its rows are read again. Bytes beyond the end are cut off."""
        by_file: dict[Any, list[int]] = {}
        for index in holes:
            by_file.setdefault(rows[index][0], []).append(index)
        for key, indexes in by_file.items():
            opened = unwrap_file(key)
            own = b"" if opened is None else opened.handle.session  # its appends may end with the next flush only
            file, retry = files[key], HoleRetry(self.context, files[key], own)
            first = min(rows[index][1] for index in indexes)
            end = max(rows[index][1] + len(views[index]) for index in indexes)
            if not await retry.holes_are_final(first, end, changes[key]):
                indexes = [index for index, row in enumerate(rows) if row[0] == key]
                for index in indexes:
                    views[index] = views[index][: await retry.read(rows[index][1], views[index])]
            for index in indexes:
                views[index] = views[index][: max(0, file.length - rows[index][1])]
        return views

    async def _read_files(self, keys: Iterable[Any]) -> dict[Any, ReadFile]:
        """The ReadFile of each open file and path. Paths are looked up in one call."""
        files: dict[Any, ReadFile] = {}
        names = []
        for key in keys:
            file = unwrap_file(key)
            if file is None:
                names.append(key)
                continue
            file.check_usable(reading=True)
            await file.flush_buffer()
            files[key] = file.handle.file
        for name, inode in zip(names, await self.stat_inodes(names) if names else (), strict=True):
            if inode is None:  # this call says why
                inode = (await self._call(methods.STAT, pb.StatRequest(place=paths.place(name), follow=True))).inode
            if not mode_permits_read(self.caller, inode):  # the permission bits alone do not decide
                await self.access(name, os.R_OK)
            self._check_file(inode, name)
            files[name] = reads.of_inode(inode, self.context.lease.number)
        return files

    async def _refresh_files(self, files: Iterable[ReadFile]) -> None:
        for file in files:
            request = pb.StatRequest(place=paths.inode_place(file.inode))
            inode = (await self._call(methods.STAT, request)).inode
            file.apply_inode(inode, self.context.lease.number)

    async def write_batch(self, rows: Sequence[WriteRow], *, timeout_s: float | None = None) -> int:
        """Write (file, offset, buffer) rows from the caller's memory, in few requests. Returns the bytes written.

        All are durable on all replicas when it returns. Rows that overlap are written in the order given. `flush` or
        `close` of the files reports their lengths.
        """
        if not self.context.lease.is_valid:
            await self.context.lease.revalidate()
        checked: list[tuple[AsyncFile, int, memoryview]] = []
        for key, offset, data in rows:
            file = unwrap_file(key)
            if file is None:
                raise InvalidArgument(f"write_batch needs files open for writing, not {type(key).__name__}")
            view = byte_view(data)
            file.check_usable(writing=True)
            await file.handle.recheck_quota()
            file.handle.check_write(offset, len(view))
            checked.append((file, offset, view))
        for file in {id(file): file for file, _, _ in checked}.values():
            await file.flush_buffer()
            file.drop_read_ahead()
        since = [file.handle.file.truncate_version for file, _, _ in checked]
        left_s = self.context.options.timeout_s if timeout_s is None else timeout_s
        try:
            await self._apply(checked, left_s)
        except BaseException as error:
            for file, _, _ in checked:
                file.handle.record_write(outcome_unknown=True)
            if not isinstance(error, ThreefsError):
                raise
            raise paths.with_file_names(error, {file.handle.inode: file.name for file, _, _ in checked}) from None
        for (file, offset, view), version in zip(checked, since, strict=True):
            if len(view):
                file.handle.record_write(offset + len(view), truncate_version=version)
        for file in {id(file): file for file, _, _ in checked}.values():
            await file.handle.sync_for_quota()
        return sum(len(view) for _, _, view in checked)

    async def _apply(self, rows: Sequence[tuple[AsyncFile, int, memoryview]], timeout_s: float) -> None:
        """Write the rows. They are sent again if locks of other clients on one of the files were lost during the
        write."""
        deadline = self.context.deadline(timeout_s)
        handles = list({id(file): file.handle for file, _, _ in rows}.values())
        for handle in handles:
            await handle.await_table()
        while True:
            updates = [update for file, at, view in rows for update in file.handle.updates(at, view)]
            left_s = max(0.0, deadline - self.context.clock.monotonic())
            try:
                with ExitStack() as changing:
                    for handle in handles:
                        changing.enter_context(handle.changing_chunks())
                    await self.context.chunks.apply(updates, timeout_s=left_s)
                return
            except StaleFence:
                if not left_s:
                    raise
            sent = [handle.fence for handle in handles]
            for handle in handles:
                handle.check_writable(0, 0)  # it may have been closed, and that is why the fence was raised
                await handle.refresh_fence()
            if sent == [handle.fence for handle in handles]:
                for handle in handles:
                    await handle.raise_fence()

    async def chunk_checksums(self, files: Sequence[Any]) -> list[list[ChunkChecksum]]:
        """The records that storage has of each chunk of these paths or open files: number, length, CRC32C. No content
        is read. Chunks that are holes are missing."""
        found = await self._read_files(dict.fromkeys(files))
        await self._refresh_files(file for key, file in found.items() if unwrap_file(key) is not None)
        asked = [found[key] for key in files]
        return await chunk_checksums.of_files(self.context.chunks, asked, timeout_s=self.context.options.timeout_s)

    async def copy_range(self, source: Any, offset: int, destination: Any, at: int, length: int) -> int:
        """Copy bytes from one open file to offset `at` of another one, or of the same file.

        Returns how many, fewer than `length` only at the end of the source. Holes stay holes. The bytes are durable
        when it returns. Raises InvalidArgument if the ranges overlap within one file.
        """
        reader, writer = unwrap_file(source), unwrap_file(destination)
        if reader is None or writer is None:
            raise InvalidArgument("copy_range needs two open files")
        reader.check_usable(reading=True)
        writer.check_usable(writing=True)
        await reader.flush_buffer()
        await writer.flush_buffer()
        writer.drop_read_ahead()
        return await copy_range.copy_range(reader.handle, offset, writer.handle, at, length)

    async def copy(self, source: Path, destination: Path, *, replace: bool = True) -> int:
        """Copy the content and permission bits of a file; returns its length. The copy appears complete.

        An existing destination is replaced, unless `replace` is false (then AlreadyExists). Raises NotFound,
        IsADirectory.
        """
        above, _, name = paths.display(destination).rstrip("/").rpartition("/")
        if not name:
            raise InvalidArgument(f"{paths.display(destination)} does not name an entry")
        async with await self.open(source) as old:
            mode = (await self.stat(source)).mode & 0o777
            if not replace and await self.exists(destination):
                raise AlreadyExists(f"{paths.display(destination)} exists already")
            async with await self.create_unnamed(above or "/", permissions=mode) as new:
                length = await copy_range.copy_range(old.handle, 0, new.handle, 0, old.length)
                if not replace:
                    await self.link_file(new, destination)
                    return length
                temporary = paths.join(above or "/", f".copy-{self.context.random.token(8).hex()}")
                try:
                    await self.link_file(new, temporary)
                    await self.rename(temporary, destination)
                except BaseException:
                    with suppress(ThreefsError):  # the call may have been made, although its answer was lost
                        await self.unlink(temporary)
                    raise
        return length

    async def read_file(self, path: Path) -> bytes:
        """All bytes of a file."""
        async with await self.open(path) as file:
            return await file.read()

    async def write_file(
        self,
        path: Path,
        data: Any,
        *,
        permissions: int = 0o644,
        parents: bool = False,
        replace: bool = False,
        exclusive: bool = False,
    ) -> None:
        """Write a whole file. All bytes are durable, and visible under the name, when it returns.

        A new file appears whole, or not at all if this process dies. An existing file is written anew in place: it
        keeps its permissions, its other names and its number. With `replace` the new file takes the name in one step
        instead, so readers see either file whole. With `exclusive` an existing file is an error (AlreadyExists).
        `parents` creates missing directories.
        """
        new = NewFile(path, byte_view(data), checked_permissions(permissions), parents, replace, exclusive)
        await self._whole_file_writer().write(new)

    async def write_many(
        self,
        files: Iterable[tuple[Path, Any]],
        *,
        permissions: int = 0o644,
        parents: bool = False,
        replace: bool = False,
    ) -> Sequence[ThreefsError | None]:
        """Write (path, bytes) pairs as `write_file` does, in few requests and few commits. Returns None or the error of
        each. The files are independent of each other and written in no particular order, so their paths must differ."""
        checked_permissions(permissions)
        new_files = [NewFile(path, byte_view(data), permissions, parents, replace) for path, data in files]
        return await self._whole_file_writer().write_many(new_files)

    def _whole_file_writer(self) -> WholeFileWriter:
        request = pb.PublishRequest(uid=os.geteuid(), gid=os.getegid())
        return WholeFileWriter(self.context, self.caller, request, self._write_in_place)

    async def _write_in_place(self, new: NewFile) -> None:
        async with await self.open(new.path, "wb", permissions=new.permissions, parents=new.parents) as file:
            await file.write(new.data)


def unwrap_file(key: Any) -> AsyncFile | None:
    """The AsyncFile of an asyncio or blocking file object; None for a path."""
    if isinstance(key, AsyncFile):
        return key
    inner = getattr(key, "threefs_file", None)
    return inner() if inner is not None else None


def _shown_key(key: Any) -> str:
    """How a row names its file, for errors."""
    file = unwrap_file(key)
    return paths.display(key) if file is None else file.name
