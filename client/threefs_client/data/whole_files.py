"""Writes new files of which all bytes are known: the content first, then everything else in one transaction.

The content goes to the chunks of a precreated file (`metadata/precreated.py`), durably on all replicas. Then the file
is published: it gets its name, length and attributes. So such a file costs its name one commit, and its chunks one
write; a reader that finds the name finds the whole file, and a writer that dies leaves the whole file or none.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, NamedTuple

from threefs.cluster.chunk_update import ChunkUpdate
from threefs.errors import AlreadyExists, InvalidArgument, LayoutDiffers, SessionLost, ThreefsError
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_client import paths
from threefs_client.context import ClientContext
from threefs_client.data.handles import Handle
from threefs_client.metadata.precreated import MAX_FILES, Precreated
from threefs_client.paths import Path

#: Files that are written together have at most this many bytes.
_GROUP_BYTES = 8 << 20
#: From this length on it is asked whether the name is taken before the content is sent: it would be sent once more to
#: the existing file. For less, the question costs more than the bytes.
_LOOK_FIRST_BYTES = 256 << 10
#: The first attempt may have a file of another layout, or one whose lease has ended unnoticed.
_ATTEMPTS = 3


class NewFile(NamedTuple):
    path: Path
    data: memoryview
    permissions: int
    parents: bool  # make missing directories
    replace: bool  # take the name from an existing file
    exclusive: bool = False  # fail if the name is taken


def groups(files: Sequence[NewFile]) -> Iterator[Sequence[NewFile]]:
    """Files that are written together: as many as are precreated in a call."""
    start = size = 0
    for number, new in enumerate(files):
        if number > start and (number - start == MAX_FILES or size + len(new.data) > _GROUP_BYTES):
            yield files[start:number]
            start, size = number, 0
        size += len(new.data)
    if start < len(files):
        yield files[start:]


class _Filled(NamedTuple):
    """A precreated file that is being filled."""

    precreated: Precreated
    handle: Handle


class WholeFileWriter:
    """For one user."""

    def __init__(
        self,
        context: ClientContext,
        caller: pb.Caller | None,
        request: pb.PublishRequest,
        write_in_place: Callable[[NewFile], Awaitable[None]],
    ) -> None:
        """`request` has what all publications have in common. `write_in_place` writes to an existing file."""
        self._context = context
        self._caller = caller
        self._request = request
        self._write_in_place = write_in_place

    async def write(self, new: NewFile) -> None:
        """Write a file, in place if the name is taken and neither `replace` nor `exclusive` is set. Raises
        InvalidArgument if both are."""
        if new.replace and new.exclusive:
            raise InvalidArgument("a file that replaces another one is not exclusive: choose one of the two")
        in_place = not (new.replace or new.exclusive)
        if in_place and len(new.data) >= _LOOK_FIRST_BYTES and await self._exists(new.path):
            await self._write_in_place(new)
            return
        try:
            await self._write_new(new)
        except AlreadyExists:
            if new.exclusive:
                raise
            await self._write_in_place(new)

    async def _exists(self, path: Path) -> bool:
        request = pb.StatRequest(place=paths.place(path), follow=True)
        options = self._context.options
        try:
            await self._context.meta.call(methods.STAT, request, timeout_s=options.timeout_s, caller=self._caller)
        except ThreefsError:  # the publication decides, and says what is wrong
            return False
        return True

    async def write_many(self, files: Sequence[NewFile]) -> list[ThreefsError | None]:
        """The same for many files, in few requests and commits. Returns None or the error of each."""
        errors: list[ThreefsError | None] = []
        for group in groups(files):
            for new, error in zip(group, await self._write_group(group), strict=True):
                errors.append(await self._write_after_all(new, error))
        return errors

    async def _write_after_all(self, new: NewFile, error: ThreefsError | None) -> ThreefsError | None:
        """Write a file that could not be written together with others. Returns the error."""
        try:
            if isinstance(error, AlreadyExists):
                await self._write_in_place(new)
            elif isinstance(error, LayoutDiffers | SessionLost):
                await self.write(new)
            else:
                return error
        except ThreefsError as final:
            return final
        return None

    async def _write_new(self, new: NewFile) -> None:
        """Raises AlreadyExists."""
        for left in reversed(range(_ATTEMPTS)):
            filled = await self._take(new)
            try:
                await self._fill(filled.handle, new.data)
                await filled.handle.call(methods.PUBLISH, self._publication(filled, new))
            except (LayoutDiffers, SessionLost) as error:
                self._give_up(filled, error)
                if not left:
                    raise
                if isinstance(error, LayoutDiffers):
                    await self._context.precreated.learn(paths.encode(new.path), self._caller)
            except BaseException as error:
                self._give_up(filled, error)
                raise
            else:
                self._context.lease.release()
                return

    async def _write_group(self, files: Sequence[NewFile]) -> list[ThreefsError | None]:
        """Write new files with one request per storage process, and publish them in one message. Returns None or the
        error of each at its first attempt."""
        filled: list[_Filled] = []
        try:
            for number, new in enumerate(files):  # not a comprehension: those before a failure are given up
                filled.append(await self._take(new, len(files) - number))
            errors = await self._fill_all(filled, files)
            written = [number for number, error in enumerate(errors) if error is None]
            requests: list[Any] = [
                (methods.PUBLISH, self._publication(filled[number], files[number])) for number in written
            ]
            replies = await self._context.meta.send_changes(
                requests, timeout_s=self._context.options.timeout_s, caller=self._caller
            )
        except BaseException as error:
            for one in filled:
                self._give_up(one, error)
            if not isinstance(error, ThreefsError):
                raise
            return [error] * len(files)
        for number, reply in zip(written, replies, strict=True):
            if isinstance(reply, ThreefsError):
                errors[number] = filled[number].handle.named(reply)
        for one, outcome in zip(filled, errors, strict=True):
            if outcome is None:
                self._context.lease.release()
            else:
                self._give_up(one, outcome)
        return errors

    async def _take(self, new: NewFile, wanted: int = 1) -> _Filled:
        taken = await self._context.precreated.take(paths.encode(new.path), self._caller, wanted)
        handle = Handle(self._context, taken.inode, taken.session, taken.lease, self._caller)
        handle.name = paths.display(new.path)
        return _Filled(taken, handle)

    async def _fill(self, handle: Handle, data: memoryview) -> None:
        piece = self._context.options.in_flight_bytes
        for offset in range(0, len(data), piece):
            await handle.write(offset, data[offset : offset + piece])

    async def _fill_all(self, filled: Sequence[_Filled], files: Sequence[NewFile]) -> list[ThreefsError | None]:
        """Write the content of all files. Returns None or the error of each."""
        if not self._context.lease.is_valid:
            await self._context.lease.revalidate()
        updates: list[ChunkUpdate] = []
        owners: list[int] = []  # of each update, the number of its file
        errors: list[ThreefsError | None] = [None] * len(files)
        for number, (one, new) in enumerate(zip(filled, files, strict=True)):
            try:
                one.handle.check_write(0, len(new.data))
                await one.handle.await_table()
            except ThreefsError as error:
                errors[number] = error
                continue
            updates += one.handle.updates(0, new.data)
            owners += [number] * (len(updates) - len(owners))
        outcomes = await self._context.chunks.apply_each(updates, timeout_s=self._context.options.timeout_s)
        for number, outcome in zip(owners, outcomes, strict=True):
            if isinstance(outcome, ThreefsError):
                errors[number] = filled[number].handle.named(outcome)
        return errors

    def _publication(self, filled: _Filled, new: NewFile) -> pb.PublishRequest:
        request = pb.PublishRequest()
        request.CopyFrom(self._request)
        request.mutation.CopyFrom(self._context.meta.mutation())
        request.inode, request.session = filled.precreated.inode.inode, filled.precreated.session
        request.place.CopyFrom(paths.place(new.path))
        request.mode, request.length = new.permissions, len(new.data)
        request.replace, request.parents = new.replace, new.parents
        return request

    def _give_up(self, filled: _Filled, why: BaseException) -> None:
        request = filled.handle.close_request()
        self._context.precreated.give_up(filled.precreated, request, self._caller, why)
