"""The operations of the file system for fsspec. What they do with the connection is in the modules beside this one."""

import stat
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from glob import has_magic
from typing import Any

import aiofiles.os
from fsspec.asyn import sync, sync_wrapper
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.utils import isfilelike, stringify_path, tokenize
from threefs_client import AsyncFile, AsyncFileSystem, modes, paths

from threefs.errors import IsADirectory, NotADirectory, NotFound, NotSupported
from threefs_fsspec import listing, ranges, renames, replacement, transfer
from threefs_fsspec.connection import ConnectedFileSystem
from threefs_fsspec.files import AsyncThreefsFile, ThreefsFile
from threefs_fsspec.listing import Info


class ThreefsFileSystem(ConnectedFileSystem):
    """`fsspec.filesystem("threefs", address="threefs://host:port")`. Paths are absolute, from the root of the cluster.

    Without an address it is the cluster of $THREEFS_ADDRESS, or the one that `threefs up` has started. Other arguments
    are the fields of `threefs_client.Options`; fsspec also takes them from $FSSPEC_THREEFS_NAME.
    """

    # ---- attributes and listings ----

    async def _info(self, path: str, **_: Any) -> Info:
        stripped = self._strip_protocol(path)
        return await self._run(lambda core: listing.info(core, stripped))

    async def _infos(self, paths: Sequence[str]) -> list[Info | None]:
        """The attributes of many paths, in one call. None where nothing exists."""
        names = [self._strip_protocol(path) for path in paths]
        return await self._run(lambda core: listing.infos(core, names))

    infos = sync_wrapper(_infos)

    async def _ls(self, path: str, detail: bool = True, **_: Any) -> Any:
        top = self._strip_protocol(path)

        async def entries(core: AsyncFileSystem) -> list[Info]:
            try:
                return await listing.list_directory(core, top)
            except NotADirectory:
                return [await listing.info(core, top)]

        found = await self._run(entries)
        return found if detail else [one["name"] for one in found]

    async def _exists(self, path: str, **_: Any) -> bool:
        stripped = self._strip_protocol(path)
        return await self._run(lambda core: core.exists(stripped))

    async def _lexists(self, path: str, **_: Any) -> bool:
        stripped = self._strip_protocol(path)
        return (await self._run(lambda core: core.stat_many([stripped], follow=False)))[0] is not None

    lexists = sync_wrapper(_lexists)

    async def _isdir(self, path: str) -> bool:
        stripped = self._strip_protocol(path)
        (found,) = await self._run(lambda core: core.stat_many([stripped]))
        return found is not None and found.is_directory

    async def _isfile(self, path: str) -> bool:
        stripped = self._strip_protocol(path)
        (found,) = await self._run(lambda core: core.stat_many([stripped]))
        return found is not None and found.is_file

    async def _sizes(self, paths: Sequence[str], batch_size: int | None = None) -> list[int]:
        names = [self._strip_protocol(path) for path in paths]
        found = await self._run(lambda core: core.stat_many(names))
        return [
            (await self._info(name))["size"] if one is None else one.length
            for name, one in zip(names, found, strict=True)
        ]

    async def _find(
        self,
        path: str,
        maxdepth: int | None = None,
        withdirs: bool = False,
        *,
        detail: bool = False,
        prefix: str = "",
        **_: Any,
    ) -> Any:
        """All files below a path. Links to directories are not followed."""
        if maxdepth is not None and maxdepth < 1:
            raise ValueError(f"maxdepth must be at least 1, not {maxdepth}")
        top = self._strip_protocol(path)

        async def search(core: AsyncFileSystem) -> dict[str, Info]:
            found = await listing.find(core, top, maxdepth=maxdepth, prefix=prefix)
            if not withdirs:
                found = {name: one for name, one in found.items() if one["type"] != "directory"}
            if withdirs or not found:
                try:
                    own = await listing.info(core, top)
                except (NotFound, NotADirectory):
                    return found
                if withdirs or own["type"] == "file":
                    found[top] = own
            return found

        found = await self._run(search)
        return {name: found[name] for name in sorted(found)} if detail else sorted(found)

    async def _walk(
        self,
        path: str,
        maxdepth: int | None = None,
        topdown: bool = True,
        on_error: Any = "omit",
        *,
        detail: bool = False,
        **_: Any,
    ) -> AsyncIterator[tuple[str, Any, Any]]:
        """(path, directories, files) of each directory. Links to directories are not followed. With `topdown`,
        directories that the caller removes are left out."""
        if maxdepth is not None and maxdepth < 1:
            raise ValueError(f"maxdepth must be at least 1, not {maxdepth}")
        top = self._strip_protocol(path)
        try:
            found = {one["name"].rpartition("/")[2]: one for one in await self._ls(top)}
        except OSError as error:
            if on_error == "raise":
                raise
            if callable(on_error):
                on_error(error)
            yield (top, {}, {}) if detail else (top, [], [])
            return
        directories: Any = {name: one for name, one in found.items() if one["type"] == "directory"}
        files: Any = {name: one for name, one in found.items() if name not in directories}
        if not detail:
            directories, files = list(directories), list(files)
        if topdown:
            yield top, directories, files
        if maxdepth is None or maxdepth > 1:
            below = None if maxdepth is None else maxdepth - 1
            for name in directories:
                if listing.is_real_directory(found[name]):
                    async for step in self._walk(found[name]["name"], below, topdown, on_error, detail=detail):
                        yield step
        if not topdown:
            yield top, directories, files

    async def _du(self, path: str, total: bool = True, maxdepth: int | None = None, **options: Any) -> Any:
        found = await self._find(path, maxdepth=maxdepth, detail=True, **options)
        sizes = {name: one["size"] for name, one in found.items()}
        return sum(sizes.values()) if total else sizes

    async def _created(self, path: str) -> datetime:
        return datetime.fromtimestamp((await self._info(path))["created"], tz=UTC)

    async def _modified(self, path: str) -> datetime:
        return datetime.fromtimestamp((await self._info(path))["mtime"], tz=UTC)

    async def _ukey(self, path: str) -> str:
        """A text that changes with the content."""
        return str((await self._info(path))["ETag"])

    async def _checksum(self, path: str) -> int:
        return int(tokenize(await self._ukey(path)), 16)

    created = sync_wrapper(_created)
    modified = sync_wrapper(_modified)
    ukey = sync_wrapper(_ukey)
    checksum = sync_wrapper(_checksum)

    # ---- reading ----

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        stripped = self._strip_protocol(path)
        if start is None and end is None:
            return await self._run(lambda core: core.read_file(stripped))
        (found,) = await self._run(lambda core: ranges.read(core, [(stripped, start, end)]))
        return found

    async def _cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        batch_size: int | None = None,
        on_error: str = "return",
        **_: Any,
    ) -> list[Any]:
        """Ranges of files, read as one batch: a request per storage process. `max_gap` is not needed."""
        if not isinstance(paths, list):
            raise TypeError(f"paths must be a list, not {type(paths).__name__}")
        firsts = list(starts) if isinstance(starts, Iterable) else [starts] * len(paths)
        lasts = list(ends) if isinstance(ends, Iterable) else [ends] * len(paths)
        if not len(paths) == len(firsts) == len(lasts):
            raise ValueError(f"there are {len(paths)} paths, {len(firsts)} starts and {len(lasts)} ends")
        wanted = list(zip(map(self._strip_protocol, paths), firsts, lasts, strict=True))
        if on_error == "return":
            return await self._run(lambda core: ranges.read_or_errors(core, wanted))
        return await self._run(lambda core: ranges.read(core, wanted))

    async def _get_file(self, rpath: str, lpath: Any, callback: Any = DEFAULT_CALLBACK, **_: Any) -> None:
        path = self._strip_protocol(rpath)
        if await self._isdir(path):
            await aiofiles.os.makedirs(lpath, exist_ok=True)
            return
        get = transfer.get_into if isfilelike(lpath) else transfer.get
        await self._run(lambda core: get(core, path, lpath, callback.set_size, callback.relative_update))

    # ---- writing ----

    async def _pipe_file(
        self, path: str, value: Any, mode: str = "overwrite", *, permissions: int | None = None, **_: Any
    ) -> None:
        """Write a whole file: it appears whole, also in place of another one. `mode` "create": only a new one."""
        stripped, exclusive = self._strip_protocol(path), mode == "create"
        if self._intrans:
            await self._stage(stripped, lambda _, file: file.write(value), exclusive=exclusive, permissions=permissions)
            return
        await self._run(
            lambda core: transfer.write_whole(
                core, stripped, value, permissions=permissions, exclusive=exclusive, parents=self.auto_mkdir
            )
        )

    async def _put_file(
        self, lpath: str, rpath: str, mode: str = "overwrite", callback: Any = DEFAULT_CALLBACK, **_: Any
    ) -> None:
        path, found = self._strip_protocol(rpath), await aiofiles.os.stat(lpath)
        if stat.S_ISDIR(found.st_mode):
            await self._makedirs(path, exist_ok=True)
            return
        if not stat.S_ISREG(found.st_mode):
            raise NotSupported(f"{lpath} is neither a file nor a directory")  # a pipe may have no writer, and no end
        callback.set_size(found.st_size)
        if self._intrans:
            await self._stage(
                path,
                lambda _, file: transfer.put_into(lpath, file, callback.relative_update),
                exclusive=mode == "create",
            )
            return
        await self._run(
            lambda core: transfer.put(
                core,
                lpath,
                path,
                callback.relative_update,
                exclusive=mode == "create",
                parents=self.auto_mkdir,
            )
        )

    async def _cp_file(self, path1: str, path2: str, **_: Any) -> None:
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if await self._isdir(source):
            await self._makedirs(target, exist_ok=True)
            return
        if self._intrans:
            found = await self._run(lambda core: core.stat(source))
            await self._stage(
                target, lambda core, file: transfer.copy_into(core, source, file), permissions=found.mode & 0o777
            )
            return

        async def copy(core: AsyncFileSystem) -> None:
            try:
                await core.copy(source, target)
            except NotFound:
                if not self.auto_mkdir or not await core.exists(source):
                    raise
                await core.mkdir(paths.parent(target), parents=True)
                await core.copy(source, target)

        await self._run(copy)

    async def _mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        stripped = self._strip_protocol(path)

        async def make(core: AsyncFileSystem) -> None:
            if create_parents and (above := paths.parent(stripped)) != "/":
                await core.mkdir(above, parents=True)
            await core.mkdir(stripped)

        await self._run(make)

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        stripped = self._strip_protocol(path)
        if exist_ok:
            await self._run(lambda core: core.mkdir(stripped, parents=True))
        else:
            await self._mkdir(stripped)

    async def _rmdir(self, path: str) -> None:
        stripped = self._strip_protocol(path)
        await self._run(lambda core: core.rmdir(stripped))

    rmdir = sync_wrapper(_rmdir)

    async def _rm_file(self, path: str, **_: Any) -> None:
        stripped = self._strip_protocol(path)
        await self._run(lambda core: core.unlink(stripped))

    async def _rm(
        self,
        path: Any,
        recursive: bool = False,
        batch_size: int | None = None,
        maxdepth: int | None = None,
        **options: Any,
    ) -> None:
        """Remove files; with `recursive` directories with everything below them, in one step each."""
        if maxdepth is not None:
            await self._rm_down_to(path, recursive, maxdepth)
            return
        names = await self._names(stringify_path(path))
        await self._run(lambda core: _remove_trees(core, names) if recursive else _remove_files(core, names))

    async def _rm_down_to(self, path: Any, recursive: bool, maxdepth: int) -> None:
        names = await self._names(stringify_path(path), recursive, maxdepth)
        for name in reversed(names):
            await self._run(lambda core, name=name: core.remove(name))  # type: ignore[misc]

    async def _names(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> list[str]:
        """As `_expand_path`, but a name that exists is no pattern: a file may be called a[1]."""
        given = self._strip_protocol([path] if isinstance(path, str) else list(path))
        patterns = [name for name in given if has_magic(name)]
        found = await self._run(lambda core: core.stat_many(patterns, follow=False)) if patterns else []
        names = {name for name, there in zip(patterns, found, strict=True) if there is not None}
        others = [name for name in given if name not in names]
        for name in list(names) if recursive else ():
            names.update(await self._find(name, maxdepth=maxdepth, withdirs=True))
        if others or not names:
            try:
                names.update(await self._expand_path(others, recursive=recursive, maxdepth=maxdepth))
            except FileNotFoundError:  # patterns that match nothing
                if not names:
                    raise
        return sorted(names)

    async def _mv(self, path1: Any, path2: Any, recursive: bool = False, maxdepth: int | None = None, **_: Any) -> None:
        """Rename, each source in one step with all that is below it. Into a directory if `path2` is one; an existing
        file is replaced."""
        path1, path2 = stringify_path(path1), stringify_path(path2)
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if isinstance(path2, list):
            found = renames.one_by_one(source, target)
        elif isinstance(path1, list):
            found = renames.of_list(await self._names(path1), target)
        elif has_magic(path1) and not await self._lexists(source):
            found = renames.of_matches(await self._expand_path(path1), target)
        else:
            into, content = path2.endswith("/"), path1.endswith("/")
            found = await self._run(lambda core: renames.of_one(core, source, target, into=into, content=content))
        await self._run(lambda core: renames.make(core, found, recursive=recursive, parents=self.auto_mkdir))

    mv = sync_wrapper(_mv)

    async def _touch(self, path: str, truncate: bool = True, **_: Any) -> None:
        """Make an empty file. One that exists is emptied, or keeps its content and gets new times."""
        stripped = self._strip_protocol(path)
        if truncate:
            await self._pipe_file(stripped, b"")
            return
        if self._intrans and not await self._exists(stripped):
            if all(file.path != stripped for file in self.transaction.files):
                (await self._stage(stripped, _nothing)).give_way()
            return

        async def update(core: AsyncFileSystem) -> None:
            try:
                await core.touch(stripped)
            except NotFound:
                await core.create(stripped, parents=self.auto_mkdir, exclusive=False)

        await self._run(update)

    touch = sync_wrapper(_touch)

    async def _stage(
        self,
        path: str,
        fill: Callable[[AsyncFileSystem, AsyncFile], Coroutine[Any, Any, object]],
        *,
        exclusive: bool = False,
        permissions: int | None = None,
    ) -> ThreefsFile:
        """Write a file that takes its name at the end of the transaction. One that could not be filled never does, also
        where the program goes on after the error."""
        mode = "xb" if exclusive else "wb"
        file = await self._open_file(path, mode, autocommit=False, permissions=permissions)
        inner = file.threefs_file()
        try:
            await self._run(lambda core: fill(core, inner))
            await self._run(lambda _: inner.flush())  # else its errors would come in the commit, behind those of others
        except BaseException:
            await self._run(lambda _: inner.close())
            raise
        self.transaction.files.append(file)
        return file

    # ---- open files ----

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: Any = None,
        *,
        permissions: int | None = None,
        chunk_bytes: int = 0,
        stripe: int = 0,
        **_: Any,
    ) -> ThreefsFile:
        """A stream. A file that is written anew ("wb") takes its name when it is closed. Arguments of other file
        systems for blocks and caches have no effect, as streams read ahead by themselves."""
        file: ThreefsFile = sync(
            self.loop,
            self._open_file,
            path,
            mode,
            autocommit=autocommit,
            permissions=permissions,
            chunk_bytes=chunk_bytes,
            stripe=stripe,
        )
        return file

    async def open_async(self, path: str, mode: str = "rb", **chosen: Any) -> AsyncThreefsFile:
        """A stream for coroutines, on any event loop. The arguments are those of `open`; binary modes only."""
        stripped = self._strip_protocol(path)
        if self._intrans and modes.parse(mode).writable:
            raise NotSupported(f"{stripped}: a file for coroutines takes part in no transaction; use open or pipe_file")
        file, new = await self._run(
            lambda core: replacement.open_file(core, stripped, mode, parents=self.auto_mkdir, **chosen)
        )
        if new is not None:
            new.publish_if_left_open()  # not before: an open that was cancelled leaves the name alone
        return AsyncThreefsFile(stripped, file, new)

    async def _open_file(self, path: str, mode: str, *, autocommit: bool, **chosen: Any) -> ThreefsFile:
        stripped = self._strip_protocol(path)
        file, new = await self._run(
            lambda core: replacement.open_file(
                core, stripped, mode, autocommit=autocommit, parents=self.auto_mkdir, **chosen
            )
        )
        opened = ThreefsFile(self, self.client, file, stripped, replacement=new, autocommit=autocommit)
        if opened.writable():
            self.client.track(opened)
        return opened


async def _remove_files(core: AsyncFileSystem, names: Sequence[str]) -> None:
    for found in await core.stat_many(names, follow=False):
        if found is not None and found.is_directory:
            raise IsADirectory("directories are removed with recursive=True")
    for error in await core.remove_many(names):
        if error is not None:
            raise error


async def _nothing(core: AsyncFileSystem, file: AsyncFile) -> None:
    """The content of an empty file."""


async def _remove_trees(core: AsyncFileSystem, names: Sequence[str]) -> None:
    """Directories before what lies below them, which is gone by then."""
    removed: set[str] = set()
    for name in sorted(names):
        if removed.isdisjoint(_above(name)):
            await core.remove(name, recursive=True)
            removed.add(name)


def _above(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path
