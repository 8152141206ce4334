import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from threefs_client.async_filesystem import AsyncFileSystem
from threefs_client.data import reads

from tests.harness.memory_cluster import MemoryFiles
from tests.harness.memory_storage import make_routing
from tests.harness.virtual_time import run_virtual
from threefs.errors import (
    ChecksumMismatch,
    ChunkLost,
    ConnectionLost,
    Corrupt,
    CorruptChunk,
    DeadlineExceeded,
    NotAuthorised,
    NotServing,
    ProtocolError,
    ThreefsError,
    Unavailable,
)
from threefs.ids import TableId, TargetId
from threefs.routing import Chain, PublicState, Routing
from threefs.wire import meta_pb2, storage_pb2

KIB = 1 << 10
CONTENT = np.random.default_rng(7).integers(0, 256, 500 * KIB, dtype=np.uint8).tobytes()
ROWS = [("/a", number * 4 * KIB, 4 * KIB) for number in range(100)]


def play(scene: Callable[[MemoryFiles, AsyncFileSystem], Awaitable[None]], **options: Any) -> MemoryFiles:
    files = MemoryFiles(**options)

    async def run() -> None:
        fs = AsyncFileSystem(files.context)
        await fs.write_file("/a", CONTENT)
        files.storage.calls.clear()
        await scene(files, fs)

    run_virtual(run())
    return files


def expected(rows: list[tuple[str, int, int]]) -> list[bytes]:
    return [CONTENT[offset : offset + length] for _, offset, length in rows]


def failing(*errors: ThreefsError | None) -> list[Any]:
    return [lambda *_, error=error: error for error in errors]


async def check(fs: AsyncFileSystem, rows: list[tuple[str, int, int]] = ROWS) -> None:
    assert [bytes(view) for view in await fs.read_batch(rows)] == expected(rows)


def test_a_batch_is_one_request_per_storage_process() -> None:
    files = play(lambda _, fs: check(fs))
    assert len(files.reads()) == 3
    sizes = [len(request.target) for request in files.reads()]
    assert sum(sizes) == 100
    assert max(sizes) - min(sizes) <= 2, "replicas share the work"


def test_single_reads_take_turns_at_the_replicas() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        for _ in range(9):
            await check(fs, [("/a", 0, 100)])
        asked = [address for address, name, _ in files.storage.calls if name == "Read"]
        assert sorted(asked.count(address) for address in set(asked)) == [3, 3, 3]

    play(scene)


@pytest.mark.parametrize("kind", ["whole", "each", "array"])
def test_callers_buffers_are_filled_in_place(kind: str) -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        whole = np.zeros(100 * 4 * KIB, np.uint8)
        into: Any = {"whole": whole.data, "array": whole, "each": list(whole.reshape(100, -1))}[kind]
        views = await fs.read_batch(ROWS, into=into)
        assert whole.tobytes() == CONTENT[: len(whole)]
        assert all(np.shares_memory(np.frombuffer(view, np.uint8), whole) for view in views)

    play(scene)


def test_rows_across_chunks_and_the_end_of_the_file() -> None:
    rows = [
        ("/a", 64 * KIB - 10, 20),
        ("/a", 0, 500 * KIB),
        ("/a", 500 * KIB - 5, 100),
        ("/a", 600 * KIB, 10),
        ("/a", 3, 0),
    ]

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        await check(fs, rows)
        into = bytearray(sum(row[2] for row in rows))
        views = await fs.read_batch(rows, into=into)
        assert [bytes(view) for view in views] == expected(rows)
        assert into[:20] == CONTENT[64 * KIB - 10 :][:20]
        assert await fs.read_batch([]) == []

    play(scene)


@pytest.mark.parametrize("error", [ConnectionLost(), DeadlineExceeded(), CorruptChunk()])
def test_a_failed_attempt_goes_to_another_replica(error: ThreefsError) -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        files.storage.before = failing(error)
        await check(fs, [("/a", 5, 50)])
        first, second = [address for address, name, _ in files.storage.calls if name == "Read"]
        assert first != second

    play(scene)


def test_one_dead_process_does_not_matter() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        files.storage.down = {"storage-2:1"}
        await check(fs)
        files.storage.calls.clear()
        await check(fs)
        assert "storage-2:1" not in {address for address, _, _ in files.storage.calls}, "it is avoided for a while"

    play(scene)


def test_bytes_that_arrive_wrong_are_read_elsewhere() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        real, wrong = files.storage._read, [3]

        def read(request: storage_pb2.ReadRequest) -> tuple[storage_pb2.ReadReply, bytes]:
            reply, out = real(request)
            if wrong[0]:
                wrong[0] -= 1
                out = bytes([out[0] ^ 1]) + out[1:]
            return reply, out

        files.storage._read = read  # type: ignore[method-assign]
        await check(fs)
        wrong[0] = 1
        await check(fs, [("/a", 1, 3)])
        wrong[0] = 10_000
        with pytest.raises(ChecksumMismatch, match="chunk 0 of /a, at target"):
            await fs.read_batch([("/a", 1, 3)], timeout_s=0.05)

    play(scene)


def test_a_chunk_that_is_corrupt_everywhere_is_an_error_at_once() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        files.storage.before = failing(*[CorruptChunk()] * 3)
        with pytest.raises(CorruptChunk):
            await fs.read_batch([("/a", 1, 3)])

    play(scene)


def test_a_damaged_record_is_not_final_before_its_target_has_tried_to_make_it_good() -> None:
    """Where a chain has one copy, each flip of a bit in a record ended a read, a moment before it was corrected."""

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        files.storage.before = failing(*[Corrupt()] * 3)
        await check(fs, [("/a", 5, 50)])
        files.storage.before = failing(*[Corrupt()] * 3, *[ChunkLost()] * 3)
        with pytest.raises(ChunkLost):
            await fs.read_batch([("/a", 1, 3)])

    play(scene)


@pytest.mark.parametrize("damage", [CorruptChunk(), Corrupt()])
def test_damage_at_one_replica_is_not_final_while_the_others_are_out_of_reach(damage: ThreefsError) -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        files.storage.before = failing(Unavailable(), NotServing(), damage)
        await check(fs, [("/a", 5, 50)])

    play(scene)


def test_damage_at_the_only_replica_that_serves_is_not_final_while_others_may_repair_it() -> None:
    """Each read failed at once, for as long as the members with the good copies were out (seed 14240)."""

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        files.cluster.routing = one_serves(files.cluster.routing)
        files.storage.before = failing(CorruptChunk(), Corrupt(), CorruptChunk())
        await check(fs, [("/a", 5, 50)])
        files.storage.before = failing(*[CorruptChunk()] * 99)
        with pytest.raises(CorruptChunk):
            await fs.read_batch([("/a", 1, 3)], timeout_s=0.05)

    play(scene)


def one_serves(routing: Routing) -> Routing:
    return serve(routing, 1)


def serve(routing: Routing, count: int, first: int = 1) -> Routing:
    """So many members of each chain serve, from that node on, and the others are out."""

    def with_few(chain: Chain) -> Chain:
        serving = {TargetId(node * 100 + chain.chain_id) for node in range(first, first + count)}
        members = (
            each if each.target_id in serving else dataclasses.replace(each, state=PublicState.OFFLINE)
            for each in chain.members
        )
        return dataclasses.replace(chain, members=tuple(members))

    return dataclasses.replace(routing, chains={number: with_few(chain) for number, chain in routing.chains.items()})


def test_a_chain_without_a_serving_target_delays_only_the_reads_of_its_own_chunks() -> None:
    """Every read of a file failed while one chain of its stripe was not served, also of a file of one chunk."""

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        file, whole = await fs.open("/a"), files.cluster.routing
        out = file.handle.layout.chain_of(whole.tables[TableId(1)], 1)
        unserved = dataclasses.replace(whole.chains[out], members=())
        files.cluster.routing = dataclasses.replace(whole, version=2, chains={**whole.chains, out: unserved})
        await check(fs, [("/a", 0, 100), ("/a", 128 * KIB, 100)])
        await check(fs, [("/a", 0, 100), ("/a", 0, 0)])  # not planned as a whole
        for rows in ([(file, 64 * KIB, 9)], [(file, 0, 9), (file, 64 * KIB, 9)]):
            with pytest.raises(NotServing, match=f"chain {out} has no serving target"):
                await fs.read_batch(rows, timeout_s=0.05)
        files.cluster.upcoming = [dataclasses.replace(whole, version=3)]
        await check(fs, [("/a", 0, 100), ("/a", 64 * KIB, 100)])

    play(scene)


def test_errors_that_stay_are_raised() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        files.storage.before = failing(*[NotAuthorised()] * 9)
        with pytest.raises(NotAuthorised):
            await fs.read_batch(ROWS)
        files.storage.before = []
        files.storage.down = {f"storage-{n}:1" for n in (1, 2, 3)}
        with pytest.raises(ConnectionError):
            await fs.read_batch(ROWS, timeout_s=0.05)

    play(scene)


def test_changed_chains_are_looked_up_again() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        newer = dataclasses.replace(make_routing(version=2, chain_version=5), nodes=files.cluster.routing.nodes)
        real = files.storage._check

        def check_newer(target: int, chain_version: int, **kinds: bool) -> Any:
            files.cluster.routing, known = newer, files.cluster.routing
            try:
                return real(target, chain_version, **kinds)
            finally:
                files.cluster.routing = known

        files.storage._check = check_newer  # type: ignore[method-assign]
        files.cluster.upcoming = [newer]
        file = await fs.open("/a")
        views = await fs.read_batch([(file, 0, 10), (file, 70 * KIB, 10)])
        assert [bytes(view) for view in views] == [CONTENT[:10], CONTENT[70 * KIB :][:10]]
        assert files.cluster.refreshes >= 1

    play(scene)


def test_answers_that_make_no_sense_are_refused() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        real = files.storage._read

        def read(request: storage_pb2.ReadRequest) -> tuple[storage_pb2.ReadReply, bytes]:
            reply, out = real(request)
            reply.length[0] += 1
            return reply, out + b"x"

        files.storage._read = read  # type: ignore[method-assign]
        with pytest.raises(ProtocolError):
            await fs.read_batch([("/a", 1, 3)])

    play(scene)


def test_bytes_in_flight_are_bounded() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        rows = [("/a", 0, 500 * KIB)] * 4
        await check(fs, rows)
        await asyncio.sleep(0)
        assert fs.context.reader._budget._used == 0
        assert all(sum(request.length) <= 128 * KIB for request in files.reads())
        endpoints = fs.context.reader._selector._endpoints.values()
        assert sum(endpoint.load for endpoint in endpoints) == sum(len(request.target) for request in files.reads())

    play(scene, request_bytes=128 * KIB, in_flight_bytes=256 * KIB)


def test_cancelled_reads_give_back_their_budget() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        never = asyncio.Event()

        async def hang(*_: Any, **__: Any) -> Any:
            await never.wait()

        real, files.storage.call = files.storage.call, hang  # type: ignore[method-assign]
        task = asyncio.create_task(fs.read_batch(ROWS * 3))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)
        files.storage.call = real  # type: ignore[method-assign]
        assert fs.context.reader._budget._used == 0
        await check(fs)

    play(scene, in_flight_bytes=512 * KIB)


def test_a_late_answer_about_a_file_changes_nothing() -> None:
    layout = meta_pb2.Layout(chunk_bytes=64 * KIB, table_id=1, stripe=1)

    def answer(change: int, length: int, truncate_version: int = 0) -> meta_pb2.Inode:
        return meta_pb2.Inode(inode=7, layout=layout, change=change, length=length, truncate_version=truncate_version)

    file = reads.of_inode(answer(5, 10, truncate_version=1), lease=3)
    file.written_end = 100
    late = answer(4, 50)
    file.apply_inode(late, lease=3)
    assert (file.length, file.change, file.truncate_version, file.written_end) == (10, 5, 1, 100)
    file.apply_inode(answer(5, 20, truncate_version=1), lease=3)
    assert file.length == 100, "of the same state"
    file.apply_inode(answer(0, 200, truncate_version=1), lease=3)
    assert file.length == 200, "of a service that does not count changes"
    file.apply_inode(answer(6, 10, truncate_version=2), lease=3)
    file.apply_inode(late, lease=4)
    assert (file.length, file.change, file.truncate_version) == (50, 4, 0), "the metadata were restored"

    other = reads.of_inode(answer(9, 90), lease=5)
    other.apply_known(file)
    assert other.length == 90, "that may be of before the restore"
    file.apply_inode(answer(8, 80), lease=5)
    other.apply_known(file)
    assert other.length == 90
    file.apply_inode(answer(10, 100), lease=5)
    other.apply_known(file)
    assert other.length == 100 and other.newest is file.newest
