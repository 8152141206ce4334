"""The blocking client on a cluster of real processes."""

import asyncio
import io
import json
import multiprocessing
import pickle
import stat
import sys
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from threefs_client import FileSystem, connect_async
from threefs_client.attributes import Attributes

import threefs
from tests.harness.children import in_child
from tests.harness.cluster import LocalCluster
from threefs.errors import (
    AccessDenied,
    AlreadyExists,
    InvalidArgument,
    IsADirectory,
    NotADirectory,
    NotEmpty,
    NotFound,
    SessionLost,
    ThreefsError,
    Unavailable,
)

KIB, MIB = 1 << 10, 1 << 20


def content_of(size: int, seed: int = 1) -> bytes:
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8).tobytes()


@pytest.fixture
def place(fs: FileSystem) -> str:
    """A directory of this test's own, with small chunks."""
    path = f"/client/{uuid.uuid4().hex}"
    fs.mkdir(path, parents=True)
    fs.set_layout(path, chunk_bytes=64 * KIB)
    return path


@pytest.mark.parametrize("size", [0, 4096, 64 * KIB + 1, 5 * MIB + 3])
def test_whole_files(fs: FileSystem, place: str, size: int) -> None:
    """Of another layout than the files before them, new or not, by a user or by root."""
    content = content_of(size)
    fs.write_file(f"{place}/deep/er/a", content, permissions=0o600, parents=True)
    made = fs.stat(f"{place}/deep/er/a")
    assert (made.length, made.mode & 0o7777) == (size, 0o600)
    fs.write_file(f"{place}/deep/er/a", content[::-1])
    fs.write_file(f"{place}/b", content, replace=True)
    assert fs.read_file(f"{place}/deep/er/a") == content[::-1] and fs.stat(f"{place}/deep/er/a").inode == made.inode
    errors = fs.write_many([(f"{place}/{name}", content[:100]) for name in ("b", "c", "none/d")], replace=True)
    assert errors[:2] == [None, None] and isinstance(errors[2], NotFound)
    assert fs.read_file(f"{place}/b") == fs.read_file(f"{place}/c") == content[:100]
    fs.chmod(place, 0o755)
    user = fs.acting_as(1000, 1000)
    with pytest.raises(AccessDenied):
        user.write_file(f"{place}/e", content)
    fs.chmod(place, 0o777)
    user.write_file(f"{place}/e", content)
    assert user.stat(f"{place}/e").uid == 1000 and user.read_file(f"{place}/e") == content


@pytest.mark.parametrize("size", [0, 1, 4095, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, 300 * KIB + 7, 5 * MIB + 3])
def test_files_of_odd_sizes(fs: FileSystem, place: str, size: int) -> None:
    content = content_of(size)
    with fs.open(f"{place}/a", "wb") as file:
        assert file.write(content) == size
    assert fs.stat(f"{place}/a").length == size
    with fs.open(f"{place}/a", "rb") as file:
        assert file.read() == content
        assert file.read() == b""
    into = bytearray(size + 10)
    with fs.open(f"{place}/a", "rb") as file:
        assert file.readinto(into) == size
    assert into[:size] == content


def test_text_lines_and_standard_library_users(fs: FileSystem, place: str) -> None:
    with fs.open(f"{place}/t", "w") as file:
        file.write("ein\nzwei ä\n")
        print("drei", file=file)
    with fs.open(f"{place}/t", "r") as file:
        assert list(file) == ["ein\n", "zwei ä\n", "drei\n"]
    with fs.open(f"{place}/t", "rb") as file:
        assert file.readline() == b"ein\n"
        assert file.readlines() == ["zwei ä\n".encode(), b"drei\n"]
    with fs.open(f"{place}/n.npy", "wb") as file:
        np.save(file, np.arange(100_000))
    with fs.open(f"{place}/n.npy", "rb") as file:
        assert np.load(file).sum() == np.arange(100_000).sum()
    with fs.open(f"{place}/p", "wb") as file:
        pickle.dump({"a": [1, 2, 3]}, file)
    with fs.open(f"{place}/p", "rb") as file:
        assert pickle.load(file) == {"a": [1, 2, 3]}  # noqa: S301  (the test's own)
    with fs.open(f"{place}/j", "x") as file:
        json.dump([1, 2], file)
    assert json.loads(fs.read_file(f"{place}/j")) == [1, 2]
    with pytest.raises(FileExistsError):
        fs.open(f"{place}/j", "x")


def test_append_seek_truncate_and_holes(fs: FileSystem, place: str) -> None:
    path = f"{place}/a"
    fs.write_file(path, b"one")
    with fs.open(path, "ab") as file:
        file.write(b"two")
        assert file.tell() == 6
    with fs.open(path, "r+b") as file:
        file.seek(200 * KIB)
        file.write(b"end")
        file.seek(0)
        assert file.read() == b"onetwo" + bytes(200 * KIB - 6) + b"end"
        file.truncate(4)
        assert fs.read_file(path) == b"onet"
        file.truncate(100 * KIB)
    assert fs.read_file(path) == b"onet" + bytes(100 * KIB - 4)
    assert fs.truncate(path, 2).length == 2
    assert fs.read_file(path) == b"on"
    fs.write_file(path, b"")
    assert fs.read_file(path) == b""


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["write", "read", "truncate", "batch", "flush", "reopen"]),
        st.integers(0, 300 * KIB),
        st.integers(0, 130 * KIB),
    ),
    max_size=12,
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(OPERATIONS)
def test_a_file_behaves_like_bytes_in_memory(
    fs: FileSystem, place: str, operations: list[tuple[str, int, int]]
) -> None:
    model = bytearray()
    path = f"{place}/{uuid.uuid4().hex}"
    file = fs.open(path, "w+b")
    for step, (kind, at, size) in enumerate(operations):
        data = bytes([step + 1]) * size
        if kind == "write":
            file.seek(at)
            file.write(data)
        elif kind == "batch":
            fs.write_batch([(file, at, data)])
        if kind in ("write", "batch") and size:
            model.extend(bytes(max(0, at - len(model))))
            model[at : at + size] = data
        elif kind == "read":
            file.seek(at)
            assert file.read(size) == model[at : at + size]
        elif kind == "truncate":
            file.truncate(at)
            del model[at:]
            model.extend(bytes(at - len(model)))
        elif kind == "flush":
            file.flush()
            assert fs.read_file(path) == model
        elif kind == "reopen":
            file.close()
            file = fs.open(path, "r+b")
    file.close()
    assert fs.read_file(path) == model
    assert fs.stat(path).length == len(model)


def test_batches(fs: FileSystem, place: str) -> None:
    content = content_of(2 * MIB)
    names = [f"{place}/{number}" for number in range(5)]
    files = [fs.open(name, "wb") for name in names]
    array = np.frombuffer(content, np.uint8)
    rows = [(file, at, array[at : at + 50 * KIB]) for file in files for at in range(0, 2 * MIB, 50 * KIB)]
    assert fs.write_batch(rows) == 5 * 2 * MIB
    for file in files:
        file.close()
    random = np.random.default_rng(3)
    wanted = [
        (names[random.integers(5)], int(random.integers(2 * MIB)), int(random.integers(10_000))) for _ in range(300)
    ]
    for view, (_, at, size) in zip(fs.read_batch(wanted), wanted, strict=True):
        assert view == content[at : at + size]
    aligned = [(names[int(random.integers(5))], int(random.integers(512)) * 4 * KIB, 4 * KIB) for _ in range(256)]
    into = np.zeros(256 * 4 * KIB, np.uint8)
    fs.read_batch(aligned, into=into)
    assert into.tobytes() == b"".join(content[at : at + size] for _, at, size in aligned)
    assert [bytes(view) for view in fs.read_batch(aligned)] == [content[at : at + size] for _, at, size in aligned]


def test_names(fs: FileSystem, place: str) -> None:
    fs.mkdir(f"{place}/d/e", parents=True)
    fs.mkdir(f"{place}/d/e", parents=True)
    with pytest.raises(AlreadyExists):
        fs.mkdir(f"{place}/d")
    fs.write_file(f"{place}/d/ä b", b"12345")
    fs.symlink("ä b", f"{place}/d/s")
    fs.hard_link(f"{place}/d/ä b", f"{place}/d/e/h")
    assert [entry.name for entry in fs.list(f"{place}/d")] == ["e", "s", "ä b"]
    assert {entry.name: entry.kind for entry in fs.list(f"{place}/d")} == {
        "e": "directory",
        "s": "symlink",
        "ä b": "file",
    }
    assert fs.readlink(f"{place}/d/s") == "ä b"
    assert fs.stat(f"{place}/d/s").length == 5
    assert fs.stat(f"{place}/d/s", follow=False).is_symlink
    assert fs.stat(f"{place}/d/e/h").nlink == 2
    walked = [(top, [e.name for e in dirs], [e.name for e in others]) for top, dirs, others in fs.walk(place)]
    assert walked == [
        (place, ["d"], []),
        (f"{place}/d", ["e"], ["s", "ä b"]),
        (f"{place}/d/e", [], ["h"]),
    ]
    usage = fs.usage(place)
    assert (usage.files, usage.directories, usage.symlinks, usage.length) == (1, 3, 1, 5)
    with pytest.raises(NotEmpty):
        fs.rmdir(f"{place}/d/e")
    fs.rename(f"{place}/d/e/h", f"{place}/moved")
    assert not fs.exists(f"{place}/d/e/h")
    with pytest.raises(AlreadyExists):
        fs.rename(f"{place}/moved", f"{place}/d/s", replace=False)
    fs.rmdir(f"{place}/d/e")
    fs.unlink(f"{place}/d/s")
    assert fs.chmod(f"{place}/moved", 0o600).mode == 0o600
    assert fs.chown(f"{place}/moved", 12, -1).uid == 12
    assert fs.utime(f"{place}/moved", 5, 7_000_000_000).mtime_ns == 7_000_000_000
    found = fs.stat_many([f"{place}/moved", f"{place}/none", place])
    assert [item and item.kind for item in found] == ["file", None, "directory"]
    fs.remove(place, recursive=True)
    with pytest.raises(NotFound):
        fs.stat(place)
    assert fs.statfs().replicas == 3


def test_long_listings_come_in_pages(fs: FileSystem, place: str) -> None:
    names = [f"{number:05}" for number in range(2500)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: fs.open(f"{place}/{name}", "xb").close(), names))
    assert [entry.name for entry in fs.list(place)] == names
    assert sum(1 for entry in fs.list(place, with_attributes=True) if entry.attributes is not None) == 2500


def test_thousands_of_names_in_one_call(fs: FileSystem, place: str) -> None:
    names = [f"{place}/{number % 7}/{number:05}" for number in range(3000)]
    made = fs.create_many(names, parents=True)
    assert [one.is_file for one in made if not isinstance(one, ThreefsError)] == [True] * 3000
    again = fs.create_many([*names[:2], f"{place}/none/x", f"{place}/new"])
    kinds = [type(one) for one in again]
    assert kinds == [AlreadyExists, AlreadyExists, NotFound, Attributes]
    assert f"{place}/0/00000" in str(again[0])
    walked = {
        f"{top}/{entry.name}": entry.attributes.inode
        for top, _, others in fs.walk(place)
        for entry in others
        if entry.attributes is not None
    }
    made = [*made, *again[3:]]
    assert walked == {
        name: one.inode for name, one in zip([*names, f"{place}/new"], made, strict=True) if isinstance(one, Attributes)
    }
    gone = fs.remove_many([*names, place, f"{place}/none"])
    assert gone[:3000] == [None] * 3000
    assert [type(one) for one in gone[3000:]] == [NotEmpty, NotFound]
    assert [entry.name for entry in fs.list(place)] == [*"0123456", "new"]


def test_calls_of_the_same_time_are_made_as_if_each_went_alone(cluster: LocalCluster, place: str) -> None:
    async def work() -> None:
        async with await threefs.connect_async(cluster.address) as fs:
            names = [f"{place}/{number}" for number in range(100)]
            made = await asyncio.gather(*(fs.create(name) for name in names * 2), return_exceptions=True)
            for one, other in zip(made[:100], made[100:], strict=True):
                assert {type(one), type(other)} == {Attributes, AlreadyExists}
            inodes = [one.inode for one in made if isinstance(one, Attributes)]
            looked = await asyncio.gather(*(fs.stat(name) for name in [*names, *names]))
            assert sorted(one.inode for one in looked) == sorted([*inodes, *inodes])
            files = await asyncio.gather(*(fs.open(name, "r+b") for name in names))
            await asyncio.gather(*(file.write(name.encode()) for file, name in zip(files, names, strict=True)))
            await asyncio.gather(*(file.close() for file in files))
            assert await asyncio.gather(*(fs.read_file(name) for name in names)) == [name.encode() for name in names]
            gone = await asyncio.gather(*(fs.unlink(name) for name in names * 2), return_exceptions=True)
            for first, second in zip(gone[:100], gone[100:], strict=True):
                assert {type(first), type(second)} == {type(None), NotFound}

    asyncio.run(work())


def test_many_threads_share_a_connection_and_a_file(fs: FileSystem, place: str) -> None:
    def work(number: int) -> None:
        content = content_of(200 * KIB, seed=number)
        fs.write_file(f"{place}/{number}", content)
        assert fs.read_file(f"{place}/{number}") == content

    with fs.open(f"{place}/log", "wb") as shared, ThreadPoolExecutor(12) as pool:
        list(pool.map(work, range(24)))
        list(pool.map(lambda number: shared.write(b"%05d\n" % number), range(1000)))
    assert sorted(fs.read_file(f"{place}/log").split()) == [b"%05d" % number for number in range(1000)]


def test_inside_a_running_loop_and_beside_the_asyncio_client(cluster: LocalCluster, fs: FileSystem, place: str) -> None:
    async def work() -> None:
        fs.write_file(f"{place}/a", b"blocking")
        async with await threefs.connect_async(cluster.address) as other:
            assert await other.read_file(f"{place}/a") == b"blocking"
            await other.write_file(f"{place}/b", b"async")
            assert [entry.name async for entry in other.list(place)] == ["a", "b"]
            assert [top async for top, _, _ in other.walk(place)] == [place]
        assert fs.read_file(f"{place}/b") == b"async"

    asyncio.run(work())


def test_a_forked_child_connects_anew_and_leaves_the_parent_alone(fs: FileSystem, place: str) -> None:
    fs.write_file(f"{place}/a", b"parent")
    reader, writer = fs.open(f"{place}/a", "rb"), fs.open(f"{place}/w", "wb")
    writer.write(b"held back by the parent")
    client = fs._context().client

    def child() -> None:
        assert reader.read() == b"parent"
        assert fs._context().client != client
        fs.write_file(f"{place}/c", b"child")
        with pytest.raises(SessionLost):
            writer.write(b"x")
        writer.close()
        assert [bytes(view) for view in fs.read_batch([(reader, 1, 3), (f"{place}/c", 0, 5)])] == [b"are", b"child"]

    assert in_child(child) == 0
    assert fs._context().client == client
    assert fs.read_file(f"{place}/c") == b"child"
    writer.close()
    assert fs.read_file(f"{place}/w") == b"held back by the parent"
    assert reader.read() == b"parent"


def test_several_threads_of_a_forked_child_may_be_the_first_to_use_what_it_inherits(fs: FileSystem, place: str) -> None:
    fs.write_file(f"{place}/a", b"parent")
    reader = fs.open(f"{place}/a", "rb")
    assert reader.read() == b"parent"

    def child() -> None:
        sys.setswitchinterval(1e-6)
        together, done = threading.Barrier(6), list[object]()

        def work(number: int) -> None:
            together.wait()
            done.append(fs.stat(f"{place}/a").length if number % 2 else reader.readinto(bytearray(1)))

        threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert sorted(done, key=str) == [0, 0, 0, 6, 6, 6]

    assert [in_child(child) for _ in range(10)] == [0] * 10
    reader.close()


def test_a_fork_in_the_middle_of_other_threads_work(fs: FileSystem, place: str) -> None:
    stop, failures = threading.Event(), list[BaseException]()

    def work(number: int) -> None:
        try:
            while not stop.is_set():
                fs.write_file(f"{place}/{number}", b"z" * 100 * KIB)
                assert len(fs.read_file(f"{place}/{number}")) == 100 * KIB
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    codes = [in_child(lambda: fs.write_file(f"{place}/c", b"child")) for _ in range(5)]
    stop.set()
    for thread in threads:
        thread.join()
    assert codes == [0] * 5
    assert not failures


def _pool_work(fs: FileSystem, path: str) -> bytes:
    return fs.read_file(path)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_pickled_into_worker_processes(fs: FileSystem, place: str, method: str) -> None:
    fs.write_file(f"{place}/a", b"pickled")
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.starmap(_pool_work, [(fs, f"{place}/a")] * 6) == [b"pickled"] * 6
    assert b"token" not in pickle.dumps(fs)
    with fs.open(f"{place}/a", "rb") as file, pytest.raises(TypeError, match="pickle the file system"):
        pickle.dumps(file)


def test_misuse(fs: FileSystem, place: str) -> None:
    fs.write_file(f"{place}/a", b"x")
    with pytest.raises(InvalidArgument):
        fs.open(f"{place}/a", "rb", encoding="utf-8")
    with pytest.raises(InvalidArgument):
        fs.open(f"{place}/a", "z")
    file = fs.open(f"{place}/a", "rb")
    with pytest.raises(io.UnsupportedOperation):
        file.write(b"x")
    file.close()
    with pytest.raises(ValueError, match="closed"):
        file.read()
    with pytest.raises(IsADirectoryError):
        fs.open(place, "rb")
    with pytest.raises(NotFound):
        fs.read_file(f"{place}/none")
    with pytest.raises(OSError, match="255 bytes"):
        fs.write_file(f"{place}/{'n' * 300}", b"")


def test_a_closed_file_system(cluster: LocalCluster) -> None:
    with cluster.connect() as other:
        other.exists("/")
    with pytest.raises(ValueError, match="closed"):
        other.exists("/")


def test_a_missing_server_is_named() -> None:
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:9.*threefs up"):
        threefs.connect("threefs://127.0.0.1:9", connect_timeout_s=0.3)


def test_reads_go_on_when_a_storage_process_dies(tmp_path: Path) -> None:
    content = content_of(3 * MIB)
    with LocalCluster(tmp_path) as own, own.connect() as fs:
        fs.write_file("/a", content)
        file = fs.open("/a", "rb")
        rows = [(file, at, 4 * KIB) for at in range(0, 3 * MIB, 4 * KIB)]
        for turn in range(6):
            if turn == 1:
                own.storage[2].kill()
            if turn == 3:
                own.storage[1].kill()
            assert b"".join(fs.read_batch(rows)) == content
            assert fs.read_file("/a") == content
        own.kill()


def test_a_batch_of_reads_is_refused_as_an_open_is(fs: FileSystem) -> None:
    fs.mkdir("/refused")
    fs.write_file("/refused/file", b"content")
    fs.chmod("/refused/file", 0o600)
    fs.mknod("/refused/fifo", stat.S_IFIFO | 0o644)
    for path, refusal in (
        ("missing", NotFound),
        ("file/below", NotADirectory),
        ("fifo", InvalidArgument),
        ("", IsADirectory),
    ):
        with pytest.raises(refusal):
            fs.read_batch([("/refused/file", 0, 1), (f"/refused/{path}", 0, 1)])

    async def read_as(uid: int) -> bytes:
        async with await connect_async(fs.address) as core:
            return bytes((await core.acting_as(uid, uid).read_batch([("/refused/file", 0, 7)]))[0])

    assert asyncio.run(read_as(0)) == b"content"
    with pytest.raises(AccessDenied):
        asyncio.run(read_as(1001))


def test_a_cut_that_a_writer_learns_of_before_it_reports(fs: FileSystem, place: str) -> None:
    """Its bytes came after the cut, so they make the file longer again; none may lie behind the end."""

    async def scene() -> None:
        async with await connect_async(fs.address) as one, await connect_async(fs.address) as other:
            writer = await one.open(f"{place}/a", "wb")
            await other.truncate(f"{place}/a", 10)
            content = content_of(3 * 64 * KIB)
            await writer.handle.write(0, memoryview(content))
            await writer.handle.refresh()
            assert writer.handle.file.truncate_version == 1
            await writer.close()
            assert await other.read_file(f"{place}/a") == content

    asyncio.run(scene())
