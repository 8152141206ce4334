"""The real kernel asks."""

import asyncio
import ctypes
import errno
import os
import socket
import stat
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from threefs_client import connect, connect_async
from threefs_fuse.replies import Entry
from threefs_fuse.requests import Caller
from threefs_mount.cache.validity import Validity
from threefs_mount.files.open_file_table import OpenFileTable
from threefs_mount.vfs import ThreefsVfs

from tests.harness.clocks import SteppedClock
from tests.harness.cluster import LocalCluster
from tests.harness.mounts import Mount, need_mounts
from threefs.wire import meta_pb2 as pb

need_mounts()

NOBODY = 65534
NO_ID = 0xFFFFFFFF
AT_FDCWD = -100


@pytest.fixture(scope="module")
def mounted(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with Mount(cluster.address, tmp_path_factory.mktemp("mount") / "mnt") as root:
        yield root


@pytest.fixture
def root(mounted: Path, request: pytest.FixtureRequest) -> Path:
    """A directory of the test's own."""
    path: Path = mounted / request.node.name
    path.mkdir()
    return path


def test_files_and_names(root: Path) -> None:
    (root / "a").write_bytes(b"hello")
    (root / "d").mkdir()
    os.link(root / "a", root / "d" / "b")
    assert (root / "a").stat().st_nlink == 2
    (root / "s").symlink_to("d/b")
    assert (root / "s").read_bytes() == b"hello" and os.readlink(root / "s") == "d/b"
    (root / "d" / "b").rename(root / "c")
    assert sorted(os.listdir(root)) == ["a", "c", "d", "s"]
    assert (root / "c").stat().st_ino == (root / "a").stat().st_ino
    (root / "d").rmdir()
    with pytest.raises(FileNotFoundError):
        (root / "d").stat()
    with pytest.raises(FileExistsError):
        os.link(root / "a", root / "c")


def test_a_directory_that_is_replaced_or_removed_while_it_is_open_is_still_there_for_who_has_it(root: Path) -> None:
    for name in ("from", "to", "gone"):
        (root / name).mkdir()
    opened = [os.open(root / name, os.O_RDONLY | os.O_DIRECTORY) for name in ("to", "gone")]
    try:
        was = [os.fstat(number).st_ino for number in opened]
        (root / "from").rename(root / "to")
        (root / "gone").rmdir()
        assert [(seen.st_ino, seen.st_nlink) for seen in map(os.fstat, opened)] == [(inode, 0) for inode in was]
        assert (root / "to").stat().st_nlink == 2
    finally:
        for number in opened:
            os.close(number)


def test_a_file_without_a_name_gets_extended_attributes(root: Path) -> None:
    """One that never had one, as overlay file systems make them, and one that has lost it."""
    unnamed, removed = os.open(root, os.O_TMPFILE | os.O_RDWR, 0o600), os.open(root / "a", os.O_CREAT | os.O_RDWR)
    (root / "a").unlink()
    try:
        for number in (unnamed, removed):
            os.setxattr(number, "user.a", b"value")
            assert os.getxattr(number, "user.a") == b"value" and os.listxattr(number) == ["user.a"]
        os.link(f"/proc/self/fd/{unnamed}", root / "b", src_dir_fd=removed)  # not through link(2), which follows none
        assert os.getxattr(root / "b", "user.a") == b"value"
    finally:
        os.close(unnamed)
        os.close(removed)


def test_that_a_file_was_read_is_seen_at_once(root: Path) -> None:
    """As programs look for new mail: read since it was changed, or not."""
    path = root / "a"
    path.write_bytes(b"new mail")
    for number in range(2):
        os.utime(path, (5, 5))
        with open(path, "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            assert file.read() == b"new mail"
            read = os.fstat(file.fileno()).st_atime_ns if number else path.stat().st_atime_ns
        assert read > path.stat().st_mtime_ns
        assert path.stat().st_atime_ns == read


def test_a_read_between_two_questions_of_a_turn_is_seen_by_the_second(cluster: LocalCluster) -> None:
    async def scene() -> None:
        async with await connect_async(cluster.address) as fs:
            await fs.write_file("/turn", b"new mail")
            await fs.utime("/turn", 5 * 10**9, 5 * 10**9)
            inode = await fs.stat("/turn")
            operations = ThreefsVfs(
                fs.context, OpenFileTable(fs.context, 0, Validity(1.0)), Validity(1.0), lambda: None
            )

            async def shown_access_ns() -> int:
                answer = operations.getattr(inode.inode, Caller(0, 0, 0), None)
                return (answer if isinstance(answer, Entry) else await answer).atime_ns

            async def read() -> int:
                fs.context.atime_reporter.record_read(SimpleNamespace(inode=inode.inode, atime_due_ns=0))
                return await shown_access_ns()

            before, after = await asyncio.gather(shown_access_ns(), read())
            assert before == 5 * 10**9 < after
            await operations.close()

    asyncio.run(scene())


def test_an_answer_that_was_long_under_way_is_valid_for_the_rest_of_its_time(cluster: LocalCluster) -> None:
    """From when it was asked for: another client may have changed the file before the answer came."""

    async def scene() -> None:
        async with await connect_async(cluster.address) as fs:
            await fs.mkdir("/under-way")
            directory = (await fs.stat("/under-way")).inode
            operations = ThreefsVfs(
                fs.context, OpenFileTable(fs.context, 0, Validity(1.0)), Validity(1.0), lambda: None
            )
            clock, call = SteppedClock(), operations._call

            async def slow_call(*arguments: Any) -> Any:
                reply = await call(*arguments)
                clock.advance(0.4)
                return reply

            operations._clock = clock
            operations._call = slow_call  # type: ignore[method-assign, assignment]
            made = await operations.mkdir(directory, Caller(0, 0, 0), b"d", 0o755, 0)
            found = await operations._lookup(directory, b"d")
            asked = await operations._getattr(made.inode)
            assert found.name_s == found.attributes_s == asked.attributes_s == pytest.approx(0.6)
            clock.advance(10)
            assert operations._left_s(1000.0) == 0
            await operations.close()

    asyncio.run(scene())


def test_a_late_answer_does_not_show_a_file_as_it_was_before_it_was_written_and_closed(cluster: LocalCluster) -> None:
    """The kernel would show the old length and the old time for a second."""

    async def scene() -> None:
        async with await connect_async(cluster.address) as fs:
            await fs.write_file("/late", b"old")
            root, inode = (await fs.stat("/")).inode, (await fs.stat("/late")).inode
            files = OpenFileTable(fs.context, 1 << 20, Validity(1.0))
            operations = ThreefsVfs(fs.context, files, Validity(1.0), lambda: None)
            call, came, may_come = operations._call, asyncio.Semaphore(0), asyncio.Event()

            async def slow_call(*arguments: Any) -> Any:
                reply = await call(*arguments)
                came.release()
                return await may_come.wait() and reply

            operations._call = slow_call  # type: ignore[method-assign, assignment]
            opened, _ = await files.open(inode, os.O_RDWR, pb.Caller())
            questions = operations._lookup(root, b"late"), operations._getattr(inode)
            asking = [asyncio.ensure_future(question) for question in questions]
            await came.acquire()
            await came.acquire()
            await files.write(opened, 0, b"longer")
            await files.handle(opened).flush()
            files.release(opened)
            while files.get(inode):
                await asyncio.sleep(0.01)
            may_come.set()
            assert [entry.size for entry in await asyncio.gather(*asking)] == [6, 6]
            await operations.close()

    asyncio.run(scene())


def test_a_directory_shows_every_change_in_it_at_once(root: Path, cluster: LocalCluster) -> None:
    """The mount answers for it from what it knows; the cluster has the truth."""
    (root / "e").mkdir()
    changes: list[Callable[[], object]] = [
        lambda: (root / "a").touch(),
        lambda: (root / "b").write_bytes(b"b"),
        lambda: (root / "s").symlink_to("b"),
        lambda: os.mkfifo(root / "f"),
        lambda: os.link(root / "a", root / "l"),
        lambda: (root / "a").rename(root / "r"),
        lambda: (root / "r").rename(root / "b"),
        lambda: (root / "b").rename(root / "e" / "b"),
        lambda: (root / "s").unlink(),
        lambda: (root / "d").mkdir(),
        lambda: (root / "d").rename(root / "e" / "d"),
        lambda: (root / "e" / "d").rmdir(),
        lambda: root.chmod(0o711),
        lambda: os.utime(root, (5, 5)),
        lambda: os.setxattr(root, "user.a", b"a"),
        lambda: (root / "e" / "b").unlink(),
        lambda: (root / "e").rmdir(),
    ]
    with connect(cluster.address) as fs:
        for number, change in enumerate(changes):
            change()
            for path in [found for found in (root, root / "e") if found.exists()]:
                shown, true = path.stat(), fs.stat(f"/{path.relative_to(root.parent)}")
                assert (shown.st_mtime_ns, shown.st_ctime_ns, shown.st_nlink, shown.st_mode & 0o7777) == (
                    true.mtime_ns,
                    true.ctime_ns,
                    true.nlink,
                    true.mode,
                ), (number, path)


def test_any_byte_in_names(root: Path) -> None:
    name = os.fsencode(root) + b"/\x7f\x01\n" + "ä".encode()
    Path(os.fsdecode(name)).write_bytes(b"x")
    assert os.listdir(os.fsencode(root)) == [os.path.basename(name)]


def test_large_content_and_places_within(root: Path) -> None:
    data = os.urandom(5_000_001)
    (root / "a").write_bytes(data)
    assert (root / "a").read_bytes() == data
    with open(root / "a", "r+b") as file:
        file.seek(1_048_570)
        file.write(b"0123456789abc")
        file.seek(1_048_569)
        assert file.read(15) == data[1_048_569:1_048_570] + b"0123456789abc" + data[1_048_583:1_048_584]
    os.truncate(root / "a", 3_000_000)
    os.truncate(root / "a", 3_000_010)
    assert (root / "a").read_bytes()[-20:] == data[2_999_990:3_000_000] + bytes(10)


def test_modes_owners_and_times(root: Path) -> None:
    path = root / "a"
    path.touch()
    path.chmod(0o640)
    os.chown(path, 12, 34)
    os.utime(path, ns=(10**18 + 1, 10**18 + 2))
    found = path.stat()
    assert stat.S_IMODE(found.st_mode) == 0o640 and (found.st_uid, found.st_gid) == (12, 34)
    assert (found.st_atime_ns, found.st_mtime_ns) == (10**18 + 1, 10**18 + 2)


def test_a_time_set_by_hand_survives_the_close(root: Path) -> None:
    with open(root / "a", "wb") as file:
        file.write(b"x")
        file.flush()
        os.utime(file.fileno(), ns=(5, 7))
    assert (root / "a").stat().st_mtime_ns == 7


def test_a_file_without_a_name_lives_while_it_is_open(root: Path) -> None:
    (root / "a").write_bytes(b"before")
    reader = os.open(root / "a", os.O_RDONLY)
    os.unlink(root / "a")
    writer = os.open(root / "b", os.O_RDWR | os.O_CREAT)
    (root / "c").write_bytes(b"c")
    os.rename(root / "c", root / "b")
    os.write(writer, b"still there")
    os.fsync(writer)
    assert os.pread(reader, 100, 0) == b"before"
    assert os.pread(writer, 100, 0) == b"still there"
    assert os.fstat(reader).st_nlink == os.fstat(writer).st_nlink == 0
    os.close(reader)
    os.close(writer)


def test_one_may_stay_in_a_directory_that_is_gone(root: Path) -> None:
    (root / "d").mkdir(mode=0o711)
    place = os.open(root / "d", os.O_RDONLY | os.O_DIRECTORY)
    (root / "d").rmdir()
    for _ in range(2):
        found = os.fstat(place)
        assert stat.S_ISDIR(found.st_mode) and found.st_nlink == 0 and stat.S_IMODE(found.st_mode) == 0o711
    with pytest.raises(FileNotFoundError):
        os.open("x", os.O_CREAT | os.O_WRONLY, dir_fd=place)
    os.close(place)


def test_open_flags(root: Path) -> None:
    os.close(os.open(root / "a", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    with pytest.raises(FileExistsError):
        os.open(root / "a", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    (root / "a").write_bytes(b"12345")
    with open(root / "a", "ab") as file:
        file.write(b"67")
    assert (root / "a").read_bytes() == b"1234567"
    os.close(os.open(root / "a", os.O_WRONLY | os.O_TRUNC))
    assert (root / "a").stat().st_size == 0


def test_many_entries(root: Path) -> None:
    names = {f"file-{number:05}" for number in range(200)}
    for name in names:
        (root / name).touch()
    with os.scandir(root) as entries:
        assert {entry.name for entry in entries} == names
    with os.scandir(root) as entries:
        for entry in entries:
            os.unlink(entry.path)
    assert os.listdir(root) == []


def test_refusals(root: Path) -> None:
    (root / "d" / "e").mkdir(parents=True)
    (root / "f").touch()
    for wrong, number in (
        (lambda: os.rmdir(root / "d"), errno.ENOTEMPTY),
        (lambda: os.rmdir(root / "f"), errno.ENOTDIR),
        (lambda: os.unlink(root / "d"), errno.EISDIR),
        (lambda: os.rename(root / "d", root / "d" / "e" / "x"), errno.EINVAL),
        (lambda: os.mkdir(root / ("n" * 256)), errno.ENAMETOOLONG),
        (lambda: os.listdir(root / "f"), errno.ENOTDIR),
    ):
        with pytest.raises(OSError) as caught:
            wrong()
        assert caught.value.errno == number


def test_space(root: Path) -> None:
    found = os.statvfs(root)
    assert 0 < found.f_bavail <= found.f_blocks and found.f_namemax == 255


def as_nobody(root: Path, work: Callable[[], object]) -> str:
    """What `work` does in `root` as a user without rights, in a process of its own; the name of its error, if any."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.chdir(root)
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            work()
            said = b""
        except OSError as error:
            said = errno.errorcode[error.errno or 0].encode()
        except BaseException as error:
            said = repr(error).encode()
        os.write(writer, said)
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        said = file.read()
    os.waitpid(child, 0)
    return said.decode()


def test_special_files(root: Path) -> None:
    os.mkfifo(root / "fifo", 0o600)
    os.mknod(root / "device", stat.S_IFCHR | 0o640, os.makedev(1, 3))
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(root / "s"))
        assert stat.S_ISSOCK((root / "s").stat().st_mode)
    found = (root / "device").stat()
    assert stat.S_ISFIFO((root / "fifo").stat().st_mode)
    assert stat.S_ISCHR(found.st_mode) and found.st_rdev == os.makedev(1, 3)
    assert as_nobody(root, lambda: os.mknod("other", stat.S_IFCHR, 0)) in ("EPERM", "EACCES")


def test_exchange(root: Path) -> None:
    (root / "a").write_bytes(b"a")
    (root / "d").mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    paths = os.fsencode(root / "a"), os.fsencode(root / "d")
    assert libc.renameat2(AT_FDCWD, paths[0], AT_FDCWD, paths[1], 2) == 0
    assert (root / "d").read_bytes() == b"a" and (root / "a").is_dir()
    assert libc.renameat2(AT_FDCWD, paths[0], AT_FDCWD, paths[1], 1) == -1
    assert ctypes.get_errno() == errno.EEXIST


def test_permissions(root: Path) -> None:
    root.chmod(0o755)
    (root / "secret").touch(0o600)
    (root / "shared").touch()
    (root / "shared").chmod(0o666)
    assert as_nobody(root, Path("secret").read_bytes) == "EACCES"
    assert as_nobody(root, lambda: Path("new").touch()) == "EACCES"
    assert as_nobody(root, lambda: Path("shared").unlink()) == "EACCES"
    assert as_nobody(root, lambda: Path("shared").chmod(0o600)) == "EPERM"
    assert as_nobody(root, lambda: Path("shared").write_bytes(b"x")) == ""
    assert as_nobody(root, lambda: os.utime("shared")) == ""
    assert as_nobody(root, lambda: os.utime("shared", (1, 1))) == "EPERM"
    root.chmod(0o1777)
    assert as_nobody(root, lambda: Path("own").touch()) == ""
    assert (root / "own").stat().st_uid == NOBODY
    assert as_nobody(root, lambda: Path("shared").unlink()) == "EPERM"


def test_a_write_takes_privileges(root: Path) -> None:
    path = root / "a"
    path.touch()

    def write() -> None:
        file = os.open("a", os.O_WRONLY)
        os.write(file, b"x")
        assert stat.S_IMODE(os.fstat(file).st_mode) == 0o777

    path.chmod(0o6777)
    assert as_nobody(root, write) == ""
    assert stat.S_IMODE(path.stat().st_mode) == 0o777


def test_extended_attributes(root: Path) -> None:
    path = root / "a"
    path.touch()
    assert os.listxattr(path) == []
    os.setxattr(path, "user.colour", b"blue")
    os.setxattr(path, "trusted.large", bytes(4000))
    assert sorted(os.listxattr(path)) == ["trusted.large", "user.colour"]
    assert os.getxattr(path, "user.colour") == b"blue" and len(os.getxattr(path, "trusted.large")) == 4000
    with pytest.raises(FileExistsError):
        os.setxattr(path, "user.colour", b"red", os.XATTR_CREATE)
    os.removexattr(path, "user.colour")
    for wrong in (
        lambda: os.getxattr(path, "user.colour"),
        lambda: os.removexattr(path, "user.colour"),
        lambda: os.setxattr(path, "user.colour", b"red", os.XATTR_REPLACE),
    ):
        with pytest.raises(OSError) as caught:
            wrong()
        assert caught.value.errno == errno.ENODATA


def test_a_write_to_a_program_takes_its_capabilities_away(root: Path) -> None:
    """The kernel does it, in the name of who writes, who may not."""
    root.chmod(0o777)
    path = root / "a"
    path.write_bytes(bytes(5000))
    path.chmod(0o666)
    capability = struct.pack("<IIIII", 0x02000001, 1 << 7, 0, 0, 0)  # cap_setuid, effective and permitted

    def write() -> None:
        file = os.open("a", os.O_WRONLY)
        os.write(file, b"x")
        os.close(file)

    changes = (
        write,
        lambda: os.truncate("a", 10),
        lambda: os.posix_fallocate(os.open("a", os.O_WRONLY), 0, 100),
    )
    for change in changes:
        os.setxattr(path, "security.capability", capability)
        assert as_nobody(root, change) == ""
        assert os.listxattr(path) == []
    os.setxattr(path, "security.capability", capability)
    assert as_nobody(root, lambda: os.removexattr("a", "security.capability")) == "EPERM"
    assert os.listxattr(path) == ["security.capability"]


def test_an_acl_admits_a_user(root: Path) -> None:
    root.chmod(0o755)
    (root / "a").write_bytes(b"content")
    (root / "a").chmod(0o600)
    assert as_nobody(root, Path("a").read_bytes) == "EACCES"
    entries = ((1, 6, NO_ID), (2, 4, NOBODY), (4, 0, NO_ID), (16, 4, NO_ID), (32, 0, NO_ID))
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    os.setxattr(root / "a", "system.posix_acl_access", acl)
    assert os.getxattr(root / "a", "system.posix_acl_access") == acl
    assert stat.S_IMODE((root / "a").stat().st_mode) == 0o640
    assert as_nobody(root, Path("a").read_bytes) == ""
    assert as_nobody(root, lambda: Path("a").write_bytes(b"")) == "EACCES"


def test_many_removals_at_once(root: Path) -> None:
    for number in range(60):
        (root / f"d{number}").mkdir()
        (root / f"f{number}").touch()

    def remove(number: int) -> None:
        (root / f"d{number}").rmdir()
        (root / f"f{number}").unlink()

    with ThreadPoolExecutor(30) as programs:
        list(programs.map(remove, range(60)))
    assert os.listdir(root) == []
