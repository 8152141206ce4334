"""A file that takes its name when it is complete. Until then readers of the name see the old file, or none."""

import contextlib
from typing import Any

from threefs_client import AsyncFile, AsyncFileSystem, modes, paths

from threefs.env.random import RANDOM
from threefs.errors import AlreadyExists, InvalidArgument, IsADirectory, NotFound, NotSupported, ThreefsError


class Replacement:
    """An open file without a name, and the name that it will take. If neither `publish` nor `discard` is called, the
    file goes with its connection."""

    def __init__(self, core: AsyncFileSystem, file: AsyncFile, path: str, *, exclusive: bool) -> None:
        self.file = file
        self.gives_way = False  # a file that has the name meanwhile keeps it
        self._core = core
        self._path = path
        self._exclusive = exclusive

    def publish_if_left_open(self) -> None:
        """If nobody has closed the file when its connection ends, it takes its name. In any thread."""
        self._core.open_files.close_by(self.file, self.publish)

    async def publish(self) -> None:
        """Make everything durable and visible under the name, in one step, and close the file.

        Raises AlreadyExists if the name is taken and the file was to be a new one. After an error the name stands for
        what it stood for before.
        """
        if self.file.closed:
            return
        try:
            try:
                await self._core.link_file(self.file, self._path)
            except AlreadyExists:
                if self._exclusive:
                    raise
                if not self.gives_way:
                    await self._replace()
        finally:
            await self.file.close()

    async def _replace(self) -> None:
        temporary = paths.join(paths.parent(self._path), f".threefs-{RANDOM.token(8).hex()}")
        await self._core.link_file(self.file, temporary)
        try:
            await self._core.rename(temporary, self._path)
        except BaseException:
            with contextlib.suppress(ThreefsError):
                await self._core.unlink(temporary)
            raise

    async def discard(self) -> None:
        """Close the file, which is removed."""
        await self.file.close()


async def open_file(
    core: AsyncFileSystem,
    path: str,
    mode: str,
    *,
    autocommit: bool = True,
    parents: bool,
    permissions: int | None = None,
    chunk_bytes: int = 0,
    stripe: int = 0,
    **_: Any,
) -> tuple[AsyncFile, Replacement | None]:
    """The file, and how it takes its name if it has none yet: one that is written anew ("wb") has none.

    Without `autocommit` a new file takes its name later, and a file cannot be changed in place (NotSupported)."""
    parsed = modes.parse(mode)
    if parsed.text:
        raise InvalidArgument(f'files of this interface are binary: add a "b" to the mode {mode!r}')
    if parsed.truncate or (parsed.exclusive and not autocommit):
        new = await begin(
            core,
            path,
            permissions=permissions,
            parents=parents,
            exclusive=parsed.exclusive,
            chunk_bytes=chunk_bytes,
            stripe=stripe,
        )
        return new.file, new
    if parsed.writable and not autocommit:
        raise NotSupported(f"mode {mode!r} changes {path} in place, which a transaction could not take back")
    file = await core.open(
        path,
        mode,
        permissions=0o644 if permissions is None else permissions,
        parents=parents and parsed.create,
        chunk_bytes=chunk_bytes,
        stripe=stripe,
    )
    return file, None


async def begin(
    core: AsyncFileSystem,
    path: str,
    *,
    permissions: int | None = None,
    parents: bool,
    exclusive: bool = False,
    chunk_bytes: int = 0,
    stripe: int = 0,
) -> Replacement:
    """Open a file that will replace `path`. By default it gets the permissions of the file that it replaces.

    `parents` makes missing directories. Raises IsADirectory, and AlreadyExists if it is to be `exclusive`.
    """
    mode = await permissions_for(core, path, permissions, exclusive=exclusive)
    above = paths.parent(path)
    try:
        file = await core.create_unnamed(above, permissions=mode, chunk_bytes=chunk_bytes, stripe=stripe)
    except NotFound:
        if not parents:
            raise
        await core.mkdir(above, parents=True)
        file = await core.create_unnamed(above, permissions=mode, chunk_bytes=chunk_bytes, stripe=stripe)
    file.name = file.handle.name = path
    return Replacement(core, file, path, exclusive=exclusive)


async def permissions_for(
    core: AsyncFileSystem, path: str, chosen: int | None, *, exclusive: bool = False, default: int = 0o644
) -> int:
    """The permissions of a file that will replace `path`: those that were chosen, else those of the old file.

    Raises IsADirectory, and AlreadyExists if it is to be `exclusive`.
    """
    (old,) = await core.stat_many([path])
    if old is not None and exclusive:
        raise AlreadyExists(f"{path} exists already")
    if old is not None and old.is_directory:
        raise IsADirectory(f"{path} is a directory")
    if chosen is not None:
        return chosen
    return default if old is None else old.mode
