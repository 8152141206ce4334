import asyncio
import contextlib
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from threefs_client.async_filesystem import AsyncFileSystem
from threefs_client.data.handles import Handle

from tests.harness.memory_cluster import MemoryFiles
from tests.harness.virtual_time import run_virtual
from threefs.errors import (
    ChunkLost,
    ConnectionLost,
    Deadlock,
    NotFound,
    OutcomeUnknown,
    SessionLost,
    StaleWrite,
    Unavailable,
)
from threefs.ids import ChunkId
from threefs.wire import meta_pb2 as pb


def play(scene: Callable[[MemoryFiles, AsyncFileSystem], Awaitable[None]]) -> None:
    async def run() -> None:
        files = MemoryFiles()
        await scene(files, AsyncFileSystem(files.context))

    run_virtual(run())


async def opened(fs: AsyncFileSystem, mode: str = "w+b") -> Handle:
    return (await fs.open("/a", mode)).handle


def test_reads_end_at_the_length() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        handle = await opened(fs)
        await handle.write(100_000, memoryview(b"end"))
        view = memoryview(bytearray(b"?" * 10))
        assert await handle.read_into(99_999, view) == 4
        assert bytes(view) == b"\0end??????"
        assert await handle.read_into(200_000, view) == 0
        assert await handle.read_into(0, view[:0]) == 0

    play(scene)


def test_a_hint_from_before_a_truncate_does_not_count() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        first, second = await opened(fs), await opened(fs, "r+b")
        await first.write(0, memoryview(b"x" * 1000))
        await second.truncate(10)
        await first.close()
        assert files.meta.files[b"a"].length == 10
        assert first.length == 10

    play(scene)


def test_writes_are_reported_as_of_when_they_were_sent() -> None:
    """Whether a cut that was learned of meanwhile came before or after them, only the chains know."""

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        reports: list[tuple[int, int, int]] = []

        settle = files.meta._sync  # `_close` calls it too

        async def note(request: pb.SyncRequest | pb.CloseRequest) -> pb.InodeReply:
            reports.append((request.length_hint, request.truncate_version, request.attempted_end))
            return await settle(request)

        files.meta._sync = note  # type: ignore[method-assign]
        first, second = await opened(fs), await opened(fs, "r+b")
        await second.truncate(10)
        await first.write(0, memoryview(b"x" * 100_000))
        await first.refresh()
        await first.sync()
        await first.write(0, memoryview(b"y" * 1000))
        await first.sync()
        await first.close()
        assert reports[0] == (100_000, 0, 100_000)
        assert (1000, 1, 100_000) in reports
        assert reports[-1][2] == 100_000, "the end of all that was ever sent: removals rely on it"

    play(scene)


def test_an_empty_write_does_not_make_a_file_longer() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        handle = await opened(fs)
        await handle.write(1000, memoryview(b""))
        assert handle.length == 0
        await handle.close()
        assert files.meta.files[b"a"].length == 0

    play(scene)


def test_what_is_wrong_with_an_open_file_is_said_of_its_name() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        file = await fs.open("/a", "w+b")
        await file.write(b"abc")
        number = file.handle.inode
        files.peers.meta_faults = [(False, SessionLost(f"inode {number} is not open under this write session"))]
        with pytest.raises(SessionLost, match=r"^/a is not open under this write session"):
            await file.flush()
        files.peers.meta_faults = [(False, Deadlock(f"whoever has locked inode {number} waits"))]
        with pytest.raises(Deadlock, match=r"^whoever has locked /a waits"):
            await file.lock()
        files.peers.meta_faults = [(False, NotFound(f"inode {number} does not exist"))]
        with pytest.raises(NotFound, match=r"^/a does not exist"):
            await file.handle.refresh()
        files.peers.meta_faults = [(False, NotFound(f"inode {number} does not exist"))]
        with pytest.raises(NotFound, match=r"^/a does not exist"):
            await file.handle.refresh_fence()

        async def fails(*args: Any, **more: Any) -> Any:
            raise ChunkLost(f"the bytes of chunk {ChunkId(number, 3)} are lost")

        files.context.chunks.apply = fails  # type: ignore[method-assign]
        with pytest.raises(ChunkLost, match=r"^the bytes of chunk 3 of /a are lost$"):
            await file.handle.write(0, memoryview(b"abc"))

    play(scene)


def test_a_failed_sync_is_done_again() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        handle = await opened(fs)
        await handle.write(0, memoryview(b"abc"))
        files.context.meta._attempt_timeout_s = 0.01
        files.peers.meta_faults = [(False, SessionLost())]
        with pytest.raises(SessionLost):
            await handle.sync()
        assert files.meta.files[b"a"].length == 0
        await handle.sync()
        assert files.meta.files[b"a"].length == 3

    play(scene)


def test_a_sync_waits_for_the_report_that_another_one_has_sent() -> None:
    """What it stands for is not known to others before."""

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        handle = await opened(fs)
        await handle.write(0, memoryview(b"abc"))
        reported, report = asyncio.Event(), files.meta._sync

        async def slow(request: pb.SyncRequest | pb.CloseRequest) -> pb.InodeReply:
            await reported.wait()
            return await report(request)

        files.meta._sync = slow  # type: ignore[method-assign]
        first = asyncio.ensure_future(handle.sync())
        await files.context.clock.sleep(0.01)
        assert handle.needs_sync
        second = asyncio.ensure_future(handle.sync())
        await files.context.clock.sleep(0.01)
        assert not second.done() and files.meta.files[b"a"].length == 0
        reported.set()
        await asyncio.gather(first, second)
        assert files.meta.files[b"a"].length == 3 and not handle.needs_sync

    play(scene)


def test_a_close_during_a_report_asks_the_chains() -> None:
    """Else nobody would know the length if the report failed."""

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        handle = await opened(fs)
        await handle.write(0, memoryview(b"abc"))
        report = asyncio.ensure_future(handle.sync())
        await asyncio.sleep(0)
        assert handle.needs_sync and not report.done()
        request = handle.close_request()
        assert request.exact and request.written
        with contextlib.suppress(SessionLost):
            await report

    play(scene)


@pytest.mark.parametrize("batch", [False, True])
def test_a_close_during_a_write_asks_the_chains_and_ends_the_write(batch: bool) -> None:
    """Else its bytes might be stored behind a length that is never reported."""

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        file = await fs.open("/a", "w+b")
        writing = asyncio.ensure_future(
            fs.write_batch([(file, 0, b"abc")]) if batch else file.handle.write(0, memoryview(b"abc"))
        )
        while not file.handle._changes:
            await asyncio.sleep(0)
        fenced(files)  # as the meta service does when a session is closed so
        request = file.handle.close_request()
        assert request.exact and request.written
        with pytest.raises(SessionLost):
            await writing

    play(scene)


def test_a_close_after_a_write_asks_nobody() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        file = await fs.open("/a", "w+b")
        await file.handle.write(0, memoryview(b"abc"))
        await fs.write_batch([(file, 3, b"d")])
        request = file.handle.close_request()
        assert not request.exact and request.length_hint == 4

    play(scene)


def test_a_sync_repeats_the_report_that_another_one_could_not_send() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        handle = await opened(fs)
        await handle.write(0, memoryview(b"abc"))
        files.peers.meta_faults = [(False, SessionLost())]
        first, second = await asyncio.gather(handle.sync(), handle.sync(), return_exceptions=True)
        assert isinstance(first, SessionLost) and second is None
        assert files.meta.files[b"a"].length == 3

    play(scene)


def test_a_lost_close_is_repeated_under_the_same_identity() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        handle = await opened(fs)
        files.peers.meta_faults = [(True, ConnectionLost())]
        await handle.close()
        await handle.close()
        assert not files.meta.sessions - {b""}

    play(scene)


def test_nothing_is_written_without_a_session() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        handle = await opened(fs)
        await handle.close()
        with pytest.raises(SessionLost):
            await handle.write(0, memoryview(b"x"))
        with pytest.raises(SessionLost):
            await handle.truncate(0)
        assert not files.storage.calls

    play(scene)


def test_a_write_of_unknown_outcome_ends_before_a_truncate() -> None:
    """Otherwise it may be applied after the truncate, whose caller expects zeros there."""

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        handle = await opened(fs)
        handle.record_write(outcome_unknown=True)
        calls: list[str] = []
        call = handle.context.meta.call

        async def note(method: Any, request: Any, **more: Any) -> Any:
            calls.append(method.name)
            return await call(method, request, **more)

        handle.context.meta.call = note  # type: ignore[method-assign]
        await handle.truncate(10)
        assert calls[-2:] == ["Sync", "Truncate"]
        await handle.truncate(20)
        assert calls[-2:] == ["Truncate", "Truncate"], "known outcomes need no report first"

    play(scene)


def test_what_an_earlier_handle_has_not_reported_ends_before_a_truncate_and_is_looked_for_on_all_its_chains() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        earlier, handle = await opened(fs), await opened(fs, "r+b")
        handle.report_for(earlier)
        await handle.truncate(5)
        assert "Sync" not in [name for _, name, _ in files.peers.meta_calls], "it has written nothing"
        await earlier.refresh()
        await earlier.write(100_000, memoryview(b"known"))
        earlier.check_writable(200_000, 10)  # as before a write whose outcome is not known
        handle.report_for(earlier)
        assert handle.length == 100_005
        handle.check_writable(0, 10)
        await handle.truncate(10)
        (_, name, sync), (_, then, _) = files.peers.meta_calls[-2:]
        assert (name, then) == ("Sync", "Truncate")
        assert sync.exact and (sync.length_hint, sync.attempted_end) == (100_005, 200_010)

    play(scene)


def test_an_open_outcome_asks_for_the_exact_length() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        handle = await opened(fs)
        files.storage.before = [lambda *_: ConnectionLost(), lambda *_: SessionLost()]
        with pytest.raises(OutcomeUnknown):
            await handle.write(0, memoryview(b"abc"))
        await handle.sync()
        syncs = [request for _, name, request in files.peers.meta_calls if name == "Sync"]
        assert [request.exact for request in syncs] == [True]

    play(scene)


def test_nothing_is_written_under_a_lease_that_has_run_out() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        handle = await opened(fs)
        await handle.write(0, memoryview(b"before"))
        files.meta.lease = 2
        files.context.lease._valid_until = 0.0  # as after a silence
        with pytest.raises(SessionLost, match="lease"):
            await handle.write(6, memoryview(b"after"))
        other = (await fs.open("/b", "wb")).handle
        await other.write(0, memoryview(b"new"))
        await other.close()

    play(scene)


def test_an_append_comes_behind_what_the_file_object_has_written_by_other_means() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        await fs.write_file("/source", b"copied")
        async with await fs.open("/a", "ab") as file, await fs.open("/source") as source:
            await fs.write_batch([(file, 0, b"batch")])
            await file.write(b" one ")
            await file.flush()
            await fs.copy_range(source, 0, file, file.length, 6)
            await file.write(b" two")
        assert await fs.read_file("/a") == b"batch one copied two"

    play(scene)


def test_appends_alone_report_nothing_before_the_flush() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        async with await fs.open("/a", "ab") as file:
            for _ in range(3):
                await file.write(bytes(2 << 20))
            assert not [name for _, name, _ in files.peers.meta_calls if name == "Sync"]

    play(scene)


def test_a_file_is_noted_as_long_as_it_is_open_for_reading() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        await fs.write_file("/a", b"x")
        assert not files.context.lease._read_opens and not files.context.lease._holders
        async with await fs.open("/a") as one, await fs.open("/a"):
            assert list(files.context.lease._read_opens) == [one.handle.inode]
        assert not files.context.lease._read_opens

    play(scene)


def test_a_file_that_a_program_has_forgotten_is_not_kept() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        lease = files.context.lease
        await fs.write_file("/a", b"x")
        for _ in range(3):
            file = await fs.open("/a")
            assert await file.read() == b"x"
        await asyncio.sleep(2 * lease.duration_s)
        assert lease._reported == {file.handle.inode}, "the last one is in use"
        del file
        gc.collect()
        await asyncio.sleep(lease.duration_s)
        assert not lease._read_opens and not lease._reported and not lease.number

    play(scene)


def test_a_forgotten_file_that_is_closed_after_its_handle_was_freed_is_given_up_once() -> None:
    """Also the other one was: a removed file was taken away from a program that read it."""

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        await fs.write_file("/a", b"x")
        used, file, lease = await fs.open("/a"), await fs.open("/a"), files.context.lease
        file.handle.__del__()  # as the collector does with a cycle of objects, before the file object closes itself
        await file.close()
        await asyncio.sleep(2 * lease.duration_s)
        assert lease._reported == {used.handle.inode}, "it is in use"

    play(scene)


def test_a_file_that_cannot_be_opened_holds_nothing() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        for mode in ("rb", "r+b"):
            with pytest.raises(FileNotFoundError):
                await fs.open("/nothing", mode)
        assert not files.context.lease._read_opens and not files.context.lease._holders

    play(scene)


def fenced(files: MemoryFiles) -> None:
    """Somebody has lost a lock on the file."""
    inode = files.meta.files[b"a"]
    inode.fence += 1
    for chain in files.cluster.routing.chains:
        files.storage.fences[chain, inode.inode] = inode.fence


def test_a_client_that_has_lost_nothing_writes_on_under_the_new_fence() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        handle = await opened(fs)
        await handle.write(0, memoryview(b"one"))
        fenced(files)
        await handle.write(0, memoryview(b"two"))
        fenced(files)
        async with await fs.open("/a", "r+b") as file:
            fenced(files)
            await fs.write_batch([(file, 0, b"T"), (file, 3, b"!")])
            fenced(files)
            await file.allocate(1, 1, 3)
        assert await fs.read_file("/a") == b"T\0o!"

    play(scene)


def test_a_batch_that_fails_names_its_files() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        async with await fs.open("/a", "wb") as file:
            inode = file.handle.inode
            files.storage.before = [lambda *_: StaleWrite(f"write 1 of inode {inode} came late")]
            with pytest.raises(StaleWrite, match="write 1 of /a came late"):
                await fs.write_batch([(file, 0, b"x")])

    play(scene)


def test_a_fence_that_restored_metadata_do_not_know_is_asked_for() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        handle = await opened(fs)
        await handle.write(0, memoryview(b"one"))
        inode = files.meta.files[b"a"]
        settle = files.meta._sync

        async def report(request: pb.SyncRequest | pb.CloseRequest) -> pb.InodeReply:
            if request.exact:  # as the meta service does, which raises the fence of the chains then
                inode.fence = max(files.storage.fences.values())
            return await settle(request)

        files.meta._sync = report  # type: ignore[method-assign]
        for chain in files.cluster.routing.chains:
            files.storage.fences[chain, inode.inode] = 5
        await handle.write(0, memoryview(b"two"))
        for chain in files.cluster.routing.chains:
            files.storage.fences[chain, inode.inode] = 50
        async with await fs.open("/a", "r+b") as file:
            await fs.write_batch([(file, 0, b"T")])
        assert await fs.read_file("/a") == b"Two"

    play(scene)


def test_a_client_that_has_lost_its_lease_does_not() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        handle = await opened(fs)
        await handle.write(0, memoryview(b"one"))
        await handle.sync()
        fenced(files)
        files.meta.lease += 1
        for _ in range(2):
            with pytest.raises(SessionLost):
                await handle.write(0, memoryview(b"two"))
        assert await fs.read_file("/a") == b"one"

    play(scene)


def test_the_lease_is_asked_about_after_the_fence() -> None:
    """Else a lock could be lost in between, and the new fence be taken for one that was read before."""

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        handle = await opened(fs)
        fenced(files)
        asked = len(files.peers.meta_calls)
        await handle.write(0, memoryview(b"two"))
        assert [name for _, name, _ in files.peers.meta_calls[asked:]] == ["Stat", "RenewLease"]

    play(scene)


def test_it_does_not_go_on_for_ever() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        handle = await opened(fs)
        fenced(files)
        for key in files.storage.fences:
            files.storage.fences[key] = 1 << 40  # a damaged one
        with pytest.raises(Unavailable, match="other clients lost a lock"):
            await handle.write(0, memoryview(b"x"))

    play(scene)
