"""The driver that goes through the client library."""

import contextlib
import os
import stat
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from threefs_client import AsyncFile, AsyncFileSystem, Attributes

from tests.harness.fs_drivers import EXCHANGE, NOREPLACE, SHOWN_XATTRS, Shown, Tree, grouped, name_of_error, shown_time
from threefs.env import loop_thread
from threefs.errors import AccessDenied

T = TypeVar("T")
_ALL = 1 << 24


def run(work: Coroutine[Any, Any, T]) -> T:
    return loop_thread.shared().run(work)


class ClientFile:
    def __init__(self, fs: AsyncFileSystem, file: AsyncFile) -> None:
        self.fs = fs
        self.file = file

    def pread(self, offset: int, size: int) -> bytes:
        self.file.seek(offset)
        return run(self.file.read(size))

    def pwrite(self, offset: int, data: bytes) -> int:
        self.file.seek(offset)
        return run(self.file.write(data))

    def append(self, data: bytes) -> int:
        return run(self.file.write(data))

    def truncate(self, size: int) -> None:
        run(self.file.truncate(size))

    def allocate(self, offset: int, length: int, mode: int) -> None:
        run(self.file.allocate(offset, length, mode))

    def sync(self) -> None:
        run(self.file.flush())

    def lock(self, exclusive: bool) -> None:
        run(self.file.lock(exclusive=exclusive, wait_s=0))

    def unlock(self) -> None:
        run(self.file.unlock())

    def copy_to(self, other: "ClientFile", offset: int, at: int, length: int) -> int:
        return run(self.fs.copy_range(self.file, offset, other.file, at, length))

    def close(self) -> None:
        run(self.file.close())


class ClientDriver:
    def __init__(self, fs: AsyncFileSystem, top: str) -> None:
        self._root_fs = self._fs = fs
        self._top = top

    def _at(self, path: str) -> str:
        return self._top if path == "." else f"{self._top}/{path}"

    @contextlib.contextmanager
    def acting_as(self, uid: int) -> Iterator[None]:
        self._fs = self._root_fs.acting_as(uid, uid)
        try:
            yield
        finally:
            self._fs = self._root_fs

    def make_directory(self, path: str, mode: int) -> None:
        run(self._fs.mkdir(self._at(path), mode=mode))

    def make_directories(self, path: str) -> None:
        run(self._fs.mkdir(self._at(path), parents=True))

    def make_file(self, path: str, mode: int) -> None:
        run(run(self._fs.open(self._at(path), "xb", permissions=mode)).close())

    def make_node(self, path: str, mode: int) -> None:
        run(self._fs.mknod(self._at(path), mode))

    def remove_file(self, path: str) -> None:
        run(self._fs.unlink(self._at(path)))

    def remove_directory(self, path: str) -> None:
        run(self._fs.rmdir(self._at(path)))

    def remove_tree(self, path: str) -> None:
        run(self._fs.remove(self._at(path), recursive=True))

    def link(self, source: str, target: str) -> None:
        run(self._fs.hard_link(self._at(source), self._at(target)))

    def symlink(self, target: str, path: str) -> None:
        run(self._fs.symlink(target, self._at(path)))

    def readlink(self, path: str) -> str:
        return run(self._fs.readlink(self._at(path)))

    def rename(self, source: str, target: str, flags: int) -> None:
        if flags == EXCHANGE:
            run(self._fs.exchange(self._at(source), self._at(target)))
        else:
            run(self._fs.rename(self._at(source), self._at(target), replace=flags != NOREPLACE))

    def names(self, path: str) -> list[str]:
        async def work() -> list[str]:
            return sorted([entry.name async for entry in self._fs.list(self._at(path))])

        return run(work())

    def look_in_a_row(self, paths: Sequence[str]) -> list[Shown | None]:
        found: list[Shown | None] = []
        for path in paths:
            try:
                found.append(self.stat(path, False))
            except FileNotFoundError:
                found.append(None)
        return found

    def scan(self, path: str) -> list[tuple[str, Shown]]:
        async def work() -> list[tuple[str, Shown]]:
            found = [entry async for entry in self._fs.list(self._at(path), with_attributes=True)]
            return sorted((entry.name, shown(entry.attributes)) for entry in found if entry.attributes is not None)

        return run(work())

    def walk(self, path: str) -> list[tuple[str, list[str], list[str]]]:
        async def work() -> list[tuple[str, list[str], list[str]]]:
            found = []
            async for directory, directories, others in self._fs.walk(self._at(path)):
                names = sorted(entry.name for entry in directories), sorted(entry.name for entry in others)
                found.append((os.path.normpath(path + directory.removeprefix(self._at(path))), *names))
            return sorted(found)

        return run(work())

    def stat(self, path: str, follow: bool) -> Shown:
        return shown(run(self._fs.stat(self._at(path), follow=follow)))

    def stat_many(self, paths: Sequence[str]) -> list[Shown | None]:
        found = run(self._fs.stat_many([self._at(path) for path in paths]))
        return [None if each is None else shown(each) for each in found]

    def access(self, path: str, wanted: int) -> bool:
        run(self._fs.stat(self._at(path)))
        try:
            run(self._fs.access(self._at(path), wanted))
        except AccessDenied:
            return False
        return True

    def chmod(self, path: str, mode: int) -> None:
        run(self._fs.chmod(self._at(path), mode))

    def chown(self, path: str, uid: int, gid: int, follow: bool) -> None:
        run(self._fs.chown(self._at(path), uid, gid, follow=follow))

    def utime(self, path: str, time_ns: int) -> None:
        run(self._fs.utime(self._at(path), time_ns, time_ns))

    def touch(self, path: str) -> None:
        run(self._fs.touch(self._at(path)))

    def truncate(self, path: str, length: int) -> None:
        run(self._fs.truncate(self._at(path), length))

    def getxattr(self, path: str, name: str) -> bytes:
        return run(self._fs.getxattr(self._at(path), name))

    def setxattr(self, path: str, name: str, value: bytes, flags: int) -> None:
        wanted = {"create": flags == os.XATTR_CREATE, "replace": flags == os.XATTR_REPLACE}
        run(self._fs.setxattr(self._at(path), name, value, **wanted))

    def removexattr(self, path: str, name: str) -> None:
        run(self._fs.removexattr(self._at(path), name))

    def listxattr(self, path: str) -> list[str]:
        return sorted(run(self._fs.listxattr(self._at(path))))

    def read(self, path: str) -> bytes:
        return run(self._fs.read_file(self._at(path)))

    def write(self, path: str, data: bytes) -> None:
        run(self._fs.write_file(self._at(path), data))

    def append(self, path: str, data: bytes) -> None:
        async def work() -> None:
            async with await self._fs.open(self._at(path), "ab") as file:
                await file.write(data)

        run(work())

    def write_at(self, rows: Sequence[tuple[str, int, bytes]]) -> None:
        async def work() -> None:
            async with contextlib.AsyncExitStack() as stack:
                files = {
                    path: await stack.enter_async_context(await self._fs.open(self._at(path), "r+b"))
                    for path, _, _ in rows
                }
                await self._fs.write_batch([(files[path], offset, data) for path, offset, data in rows])

        run(work())

    def read_at(self, rows: Sequence[tuple[str, int, int]]) -> list[bytes]:
        views = run(self._fs.read_batch([(self._at(path), offset, size) for path, offset, size in rows]))
        return [bytes(view) for view in views]

    def open(self, path: str, mode: str) -> ClientFile:
        return ClientFile(self._fs, run(self._fs.open(self._at(path), mode)))

    def open_unnamed(self, directory: str, mode: int) -> ClientFile:
        return ClientFile(self._fs, run(self._fs.create_unnamed(self._at(directory), permissions=mode)))

    def link_file(self, file: ClientFile, path: str) -> None:
        run(self._fs.link_file(file.file, self._at(path)))

    def make_files(self, paths: Sequence[str]) -> list[str]:
        made = run(self._fs.create_many([self._at(path) for path in paths]))
        return sorted(name_of_error(one) if isinstance(one, OSError) else "" for one in made)

    def remove_all(self, paths: Sequence[str]) -> list[str]:
        removed = run(self._fs.remove_many([self._at(path) for path in paths]))
        return sorted("" if one is None else name_of_error(one) for one in removed)

    def tree(self) -> Tree:
        return grouped(run(self._tree()))

    async def _tree(self) -> list[tuple[str, int, Shown, bytes, Iterable[tuple[str, bytes]]]]:
        """All names first, then all content in one call."""
        found: dict[str, Attributes] = {}
        waiting = [""]
        while waiting:
            directory = waiting.pop()
            async for entry in self._fs.list(self._at(directory or "."), with_attributes=True):
                assert entry.attributes is not None
                path = f"{directory}/{entry.name}".lstrip("/")
                found[path] = entry.attributes
                if entry.is_directory:
                    waiting.append(path)
        files = [path for path, each in found.items() if each.is_file]
        views = await self._fs.read_batch([(self._at(path), 0, _ALL) for path in files])
        content = {path: bytes(view) for path, view in zip(files, views, strict=True)}
        content |= {path: os.fsencode(each.target) for path, each in found.items() if each.is_symlink}
        return [
            (path, each.inode, shown(each), content.get(path, b""), await self._xattrs(path, each))
            for path, each in found.items()
        ]

    async def _xattrs(self, path: str, found: Attributes) -> Iterable[tuple[str, bytes]]:
        if found.is_symlink:
            return []
        names = [name for name in await self._fs.listxattr(self._at(path)) if name.startswith(SHOWN_XATTRS)]
        return [(name, await self._fs.getxattr(self._at(path), name)) for name in names]


def shown(found: Attributes) -> Shown:
    return Shown(
        type=stat.S_IFMT(found.st_mode),
        mode=found.mode,
        nlink=found.nlink,
        uid=found.uid,
        gid=found.gid,
        size=0 if found.is_directory else found.length,
        mtime_ns=shown_time(found.mtime_ns),
    )
