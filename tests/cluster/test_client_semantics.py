"""What POSIX programs expect of files beyond reading and writing, on a cluster of real processes."""

import asyncio
import uuid

import numpy as np
import pytest
from threefs_client import Allocation, FileSystem, connect_async
from threefs_client.metadata.locks import LockOwner

from tests.harness.cluster import LocalCluster
from threefs.errors import (
    AccessDenied,
    AlreadyExists,
    Deadlock,
    InvalidArgument,
    IsADirectory,
    Locked,
    NoDataThere,
    NotFound,
)
from threefs.wire import meta_pb2 as pb

CHUNK = 64 << 10
PUNCH = Allocation.PUNCH_HOLE | Allocation.KEEP_LENGTH


def content_of(size: int, seed: int = 1) -> bytes:
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8).tobytes()


@pytest.fixture
def place(fs: FileSystem) -> str:
    path = f"/semantics/{uuid.uuid4().hex}"
    fs.mkdir(path, parents=True)
    fs.set_layout(path, chunk_bytes=CHUNK)
    return path


def test_a_hole_is_seen_by_everybody_and_outlives_the_file_object(
    fs: FileSystem, cluster: LocalCluster, place: str
) -> None:
    content = content_of(20 * CHUNK + 5)
    fs.write_file(f"{place}/a", content)
    with fs.open(f"{place}/a", "rb+") as file:
        file.allocate(CHUNK + 7, 10 * CHUNK, PUNCH)
    wanted = content[: CHUNK + 7] + bytes(10 * CHUNK) + content[11 * CHUNK + 7 :]
    with cluster.connect() as other, other.open(f"{place}/a", "rb") as file:
        assert file.read() == wanted
        assert file.seek_hole(0) == 2 * CHUNK
        assert file.seek_data(2 * CHUNK) == 11 * CHUNK
        assert file.seek_hole(11 * CHUNK) == len(wanted)
        with pytest.raises(NoDataThere):
            file.seek_data(len(wanted))


def test_a_file_whose_end_is_a_hole_keeps_its_length(fs: FileSystem, cluster: LocalCluster, place: str) -> None:
    with fs.open(f"{place}/a", "wb+") as file:
        file.write(content_of(5 * CHUNK))
        file.allocate(0, 50 * CHUNK, PUNCH)
        with pytest.raises(NoDataThere):
            file.seek_data(0)
    with cluster.connect() as other:
        assert other.stat(f"{place}/a").length == 5 * CHUNK
        assert other.read_file(f"{place}/a") == bytes(5 * CHUNK)


def test_what_was_zeroed_can_be_written_again(fs: FileSystem, place: str) -> None:
    with fs.open(f"{place}/a", "wb+") as file:
        for turn in range(3):
            file.seek(0)
            file.write(content_of(4 * CHUNK, turn))
            file.allocate(0, 3 * CHUNK + 9, Allocation.ZERO_RANGE)
            file.seek(CHUNK)
            file.write(b"x" * 10)
            file.seek(0)
            assert (
                file.read()
                == bytes(CHUNK) + b"x" * 10 + bytes(2 * CHUNK - 1) + content_of(4 * CHUNK, turn)[3 * CHUNK + 9 :]
            )


def test_a_large_copy_between_files_of_different_layout(fs: FileSystem, place: str) -> None:
    content = content_of(21 << 20)
    fs.write_file(f"{place}/a", content)
    with (
        fs.open(f"{place}/a", "rb") as source,
        fs.open(f"{place}/b", "wb+", chunk_bytes=1 << 20) as destination,
    ):
        assert fs.copy_range(source, 5, destination, 3, len(content)) == len(content) - 5
    assert fs.read_file(f"{place}/b") == bytes(3) + content[5:]


def test_a_file_without_a_name_is_published_whole(fs: FileSystem, cluster: LocalCluster, place: str) -> None:
    content = content_of(5 * CHUNK)
    with fs.create_unnamed(place) as file, cluster.connect() as other:
        file.write(content)
        assert [entry.name for entry in other.list(place)] == []
        fs.link_file(file, f"{place}/a")
        assert other.read_file(f"{place}/a") == content
        fs.link_file(file, f"{place}/b")
        assert other.stat(f"{place}/b").nlink == 2
        with pytest.raises(AlreadyExists):
            fs.link_file(file, f"{place}/b")
    file = fs.create_unnamed(place, permissions=0o640)
    inode = file.threefs_file().handle.inode
    file.write(content)
    file.close()
    assert [entry.name for entry in fs.list(place)] == ["a", "b"]
    assert inode not in {entry.inode for entry in fs.list(place)}


def test_reading_changes_the_access_time_once(fs: FileSystem, cluster: LocalCluster, place: str) -> None:
    fs.write_file(f"{place}/a", b"abc")
    before = fs.stat(f"{place}/a")
    with cluster.connect(noatime=True) as other:
        assert other.read_file(f"{place}/a") == b"abc"
    assert fs.stat(f"{place}/a") == before
    with cluster.connect() as other:  # closing it tells the rest
        assert other.read_file(f"{place}/a") == b"abc"
    first = fs.stat(f"{place}/a")
    assert first.atime_ns > before.atime_ns
    assert (first.mtime_ns, first.ctime_ns) == (before.mtime_ns, before.ctime_ns)
    with cluster.connect() as other:
        assert other.read_file(f"{place}/a") == b"abc"
    assert fs.stat(f"{place}/a") == first


def test_users_of_blocking_programs_are_held_to_their_permissions(fs: FileSystem, place: str) -> None:
    user = fs.acting_as(1000, 1000)
    with pytest.raises(AccessDenied):
        user.write_file(f"{place}/a", b"x")
    fs.chmod(place, 0o777)
    user.write_file(f"{place}/a", b"x")
    assert (fs.stat(f"{place}/a").uid, fs.stat(f"{place}/a").gid) == (1000, 1000)
    with fs.acting_as(2000, 2000) as other, pytest.raises(AccessDenied), other.open(f"{place}/a", "rb+"):
        pass
    assert fs.read_file(f"{place}/a") == b"x"


def test_a_copy_appears_complete_or_not_at_all(fs: FileSystem, place: str) -> None:
    content = content_of(3 * CHUNK + 1)
    fs.write_file(f"{place}/a", content)
    fs.chmod(f"{place}/a", 0o750)
    assert fs.copy(f"{place}/a", f"{place}/b") == len(content)
    assert fs.read_file(f"{place}/b") == content and fs.stat(f"{place}/b").mode == 0o750
    fs.write_file(f"{place}/a", b"new")
    with pytest.raises(AlreadyExists):
        fs.copy(f"{place}/a", f"{place}/b", replace=False)
    assert fs.copy(f"{place}/a", f"{place}/c", replace=False) == 3
    fs.copy(f"{place}/a", f"{place}/b")
    assert fs.read_file(f"{place}/b") == b"new"
    fs.mkdir(f"{place}/d")
    for wrong, error in ((f"{place}/d", IsADirectory), (f"{place}/none/b", NotFound), ("/", InvalidArgument)):
        with pytest.raises(error):
            fs.copy(f"{place}/a", wrong)
    with pytest.raises(NotFound):
        fs.copy(f"{place}/none", f"{place}/b")
    assert [entry.name for entry in fs.list(place)] == ["a", "b", "c", "d"], "nothing is left over"


def test_clients_that_wait_for_each_other_get_an_error(cluster: LocalCluster, place: str) -> None:
    """One of them; the other gets what it waits for when that one lets go."""

    async def play() -> None:
        async with (
            await connect_async(cluster.address, token=cluster.token) as one,
            await connect_async(cluster.address, token=cluster.token) as two,
        ):
            inodes = [(await one.create(f"{place}/{name}")).inode for name in "ab"]
            first = [LockOwner(one.context, inode, 1, kind=pb.RECORD_LOCK) for inode in inodes]
            second = [LockOwner(two.context, inode, 1, kind=pb.RECORD_LOCK) for inode in inodes]
            await first[0].acquire(exclusive=True)
            await second[1].acquire(exclusive=True)
            waiting = asyncio.create_task(first[1].acquire(exclusive=True))
            with pytest.raises(Locked):  # a wait that is given up makes no circle
                await second[0].acquire(exclusive=True, wait_s=0)
            while not first[1]._is_queued:
                await asyncio.sleep(0.01)
            with pytest.raises(Deadlock):
                await second[0].acquire(exclusive=True)
            await second[1].release()
            await waiting
            for owner in first:
                await owner.release()

    asyncio.run(play())
