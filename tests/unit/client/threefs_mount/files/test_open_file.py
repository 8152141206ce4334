import asyncio
import errno
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threefs_client.async_filesystem import AsyncFileSystem
from threefs_client.data.handles import Handle
from threefs_client.data.write_behind import FLUSH_BYTES, FLUSH_PIECES
from threefs_client.data.write_budget import WriteBudget
from threefs_mount.files.open_file import OpenFile
from threefs_mount.kernel.credentials import mode_after_write

from tests.harness.memory_cluster import MemoryFiles
from tests.harness.virtual_time import run_virtual
from threefs.background import cancel_and_wait
from threefs.errors import LockLost, StaleWrite
from threefs.ids import ChunkId
from threefs.wire import meta_pb2 as pb

CHUNK = 64 << 10


def play(scene: Callable[[MemoryFiles, OpenFile], Awaitable[None]], **options: float) -> None:
    async def run() -> None:
        files = MemoryFiles(CHUNK, **options)
        fs = AsyncFileSystem(files.context)
        await fs.write_file("/a", b"")
        handle = await fs.open("/a", "r+b")
        file = OpenFile(files.context, files.meta.files[b"a"], WriteBudget(64 << 20))
        await file.start_session(files.meta.files[b"a"], handle.handle._session, handle.handle._lease)
        await scene(files, file)

    run_virtual(run())


def test_the_kernel_learns_of_a_truncate_from_the_first_short_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """It believes the first short answer, and fills up the pages of the others with zeros."""

    async def scene(files: MemoryFiles, file: OpenFile) -> None:
        await file.write(0, b"x" * 3 * CHUNK)
        await file.sync()
        gates = [asyncio.Event() for _ in range(3)]
        read = OpenFile._read

        async def slow(self: OpenFile, offset: int, size: int) -> tuple[memoryview, bool]:
            await gates[offset // CHUNK].wait()
            return await read(self, offset, size)

        monkeypatch.setattr(OpenFile, "_read", slow)
        answers: list[tuple[int, int]] = []

        async def ask(number: int) -> None:
            answers.append((number, len(await file.read(number * CHUNK, CHUNK))))

        asking = [asyncio.ensure_future(ask(number)) for number in range(3)]
        await asyncio.sleep(0)
        await files.meta._cut(files.meta.files[b"a"], 0)  # somebody else
        for gate in reversed(gates):
            await files.context.clock.sleep(1)
            gate.set()
        await asyncio.gather(*asking)
        assert answers == [(0, 0), (1, 0), (2, 0)]

    play(scene)


def test_unsent_bytes_can_be_read_and_are_sent_first() -> None:
    async def scene(files: MemoryFiles, file: OpenFile) -> None:
        await file.write(10, b"abc")
        assert file.length == 13 and file.dirty
        assert bytes(await file.read(0, 100)) == b"\0" * 10 + b"abc"
        assert bytes(await file.read(13, 100)) == b""

    play(scene)


def test_unsent_bytes_are_read_over_stored_ones() -> None:
    async def scene(files: MemoryFiles, file: OpenFile) -> None:
        await file.write(0, b"stored in one chunk")
        await file.sync()
        await file.write(7, b"on ")
        await file.write(30, b"behind")
        asked = len(files.storage.calls)
        assert bytes(await file.read(30, 100)) == b"behind" and len(files.storage.calls) == asked
        assert bytes(await file.read(0, 100)) == b"stored on one chunk" + b"\0" * 11 + b"behind"
        assert {name for _, name, _ in files.storage.calls[asked:]} == {"Read"}, "nothing had to be sent"
        assert file.unsent_bytes == 9

    play(scene)


def test_what_is_on_its_way_is_read_over_what_is_stored_and_below_what_came_later() -> None:
    async def scene(files: MemoryFiles, file: OpenFile) -> None:
        await file.write(0, b"stored in one chunk")
        await file.sync()
        await file.write(7, b"on ")
        files.storage.pause_s = iter((0.05, 0.001, 0.001, 0.001)).__next__  # the write arrives long after the read
        file.start_flush()
        await files.context.clock.sleep(0.01)
        await file.write(0, b"S")
        assert file.unsent_bytes == 1 and bytes(await file.read(0, 100)) == b"Stored on one chunk"
        assert file._writes.lock.locked() and bytes(files.storage.data[ChunkId(file.inode.inode, 0)])[7:10] == b"in "

    play(scene)


def test_what_was_written_during_a_round_is_sent_before_what_was_appended_after_it() -> None:
    async def scene(files: MemoryFiles, file: OpenFile) -> None:
        files.storage.pause_s = lambda: 0.01
        await file.write(0, b"x")
        file.start_flush()
        await files.context.clock.sleep(0.005)
        await file.write(0, b"yz")
        await file.append(b"end")
        await file.sync()
        assert bytes(await file.read(0, 100)) == b"yzend"

    play(scene)


def test_what_is_being_appended_counts_once_and_is_read_when_it_has_arrived() -> None:
    async def scene(files: MemoryFiles, file: OpenFile) -> None:
        files.storage.pause_s = lambda: 0.01
        await file.append(b"abcd")
        file.start_flush()
        await files.context.clock.sleep(0.005)
        assert file.length == 4 and bytes(await file.read(4, 1)) == b""
        await file.append(b"ef")
        file.start_flush()
        await files.context.clock.sleep(0.005)
        assert file.length == 6 and bytes(await file.read(3, 5)) == b"def"

    play(scene)


def test_what_is_written_during_a_sync_is_synced_by_the_next_one_also_if_it_is_on_its_way() -> None:
    async def scene(files: MemoryFiles, file: OpenFile) -> None:
        files.storage.pause_s = iter((0.01, 0.0, 1.0, 0.0)).__next__
        await file.write(0, b"first")
        sync = asyncio.ensure_future(file.sync())
        await files.context.clock.sleep(0.005)
        await file.write(CHUNK, b"second")
        file.start_flush()  # as after many bytes: its round begins when that of the sync ends
        await sync
        assert file._writes.lock.locked() and not file.unsent_bytes and file.length == CHUNK + 6
        assert file.dirty
        await file.sync()
        assert files.meta.files[b"a"].length == CHUNK + 6
        assert bytes(files.storage.data[ChunkId(file.inode.inode, 1)]) == b"second"

    play(scene)


def test_many_small_extents_are_sent_soon() -> None:
    async def scene(files: MemoryFiles, file: OpenFile) -> None:
        for number in range(FLUSH_PIECES):
            await file.write(2 * number, b"x")
        assert file._writes.flush_has_begun
        await file.sync()
        assert bytes(await file.read(0, 5)) == b"x\0x\0x"

    play(scene)


_PLACES = st.sampled_from((0, 1, 5, 100, CHUNK - 3, CHUNK, CHUNK + 7, 2 * CHUNK))
_LENGTHS = st.sampled_from((1, 2, 10, 4096, CHUNK))
_STEPS = st.one_of(
    st.tuples(st.just("write"), _PLACES, _LENGTHS),
    st.tuples(st.just("append"), st.just(0), _LENGTHS),
    st.tuples(st.just("cut"), _PLACES, st.just(0)),
    st.tuples(st.sampled_from(("read", "read")), _PLACES, _LENGTHS),
    st.tuples(st.sampled_from(("send", "send", "settle", "wait")), st.integers(1, 9), st.just(0)),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(_STEPS, min_size=10, max_size=60), st.integers(0, 1 << 32))
def test_a_writer_reads_its_bytes_however_long_they_travel(steps: list[tuple[str, int, int]], seed: int) -> None:
    async def scene(files: MemoryFiles, file: OpenFile) -> None:
        random = Random(seed)
        files.storage.pause_s = lambda: random.uniform(0.0, 0.01)
        model = bytearray()
        for number, (what, place, length) in enumerate(steps):
            data = bytes([97 + number % 26]) * length
            match what:
                case "write":
                    await file.write(place, data)
                    model.extend(bytes(max(0, place - len(model))))
                    model[place : place + length] = data
                case "append":
                    await file.append(data)
                    model += data
                case "cut":
                    await file.truncate(place, pb.Caller())
                    model = model[:place] + bytes(max(0, place - len(model)))
                case "read":
                    assert bytes(await file.read(place, length)) == bytes(model[place : place + length])
                case "send":
                    file.start_flush()
                    await files.context.clock.sleep(random.uniform(0.0, 0.005))  # what comes next meets it on its way
                case "settle":
                    await file.sync()
                case "wait":
                    await files.context.clock.sleep(place / 1000)
        await file.sync()
        assert bytes(await AsyncFileSystem(files.context).read_file("/a")) == bytes(model)

    play(scene)


def test_synced_writes_are_visible_to_others() -> None:
    async def scene(files: MemoryFiles, file: OpenFile) -> None:
        await file.write(0, b"x" * 100)
        assert files.meta.files[b"a"].length == 0
        shown = file.overlay_local(files.meta.files[b"a"].__deepcopy__({}))
        assert shown.length == 100 and shown.mtime_ns > 0
        await file.sync()
        assert files.meta.files[b"a"].length == 100 and not file.dirty

    play(scene)


def test_much_is_sent_while_it_is_written() -> None:
    async def scene(files: MemoryFiles, file: OpenFile) -> None:
        data = bytes(range(256)) * (FLUSH_BYTES // 256)
        for number in range(3):
            await file.write(number * FLUSH_BYTES, data)
        assert file._writes.flush_has_begun
        await file.sync()
        assert bytes(await file.read(FLUSH_BYTES - 1, 2)) == b"\xff\0"
        assert file.length == 3 * FLUSH_BYTES

    play(scene)


def test_a_truncate_comes_behind_the_writes_before_it() -> None:
    async def scene(files: MemoryFiles, file: OpenFile) -> None:
        await file.write(0, b"x" * 1000)
        shown = await file.truncate(10, pb.Caller())
        assert shown.length == 10 and file.length == 10
        await file.sync()
        assert files.meta.files[b"a"].length == 10
        await file.truncate(20, pb.Caller())
        assert bytes(await file.read(0, 100)) == b"x" * 10 + b"\0" * 10

    play(scene)


def test_what_is_lost_in_the_background_is_noted_and_what_comes_later_is_not() -> None:
    async def scene(files: MemoryFiles, file: OpenFile) -> None:
        nodes = {node.address for node in files.cluster.routing.nodes.values()}
        files.storage.down |= nodes
        before = file.errors.current
        await file.write(0, b"x")
        file.start_flush()
        await files.context.clock.sleep(1)
        assert not file.unsent_bytes and file.errors.check(before) is not None
        files.storage.down -= nodes
        await file.write(1, b"y")
        before = file.errors.current
        await file.sync()
        assert not file.dirty and file.errors.check(before) is None
        assert bytes(await file.read(0, 10)) == b"\0y", "what is lost is not shown as if it were there"

    play(scene, timeout_s=0.05)


def test_a_loss_for_an_unforeseen_reason_is_noted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unforeseen(*_: Any) -> None:
        raise RuntimeError("a fault of ours")

    async def scene(files: MemoryFiles, file: OpenFile) -> None:
        before = file.errors.current
        with monkeypatch.context() as patch:
            patch.setattr(Handle, "apply", unforeseen)
            await file.write(0, b"x")
            file.start_flush()
            await files.context.clock.sleep(1)
        assert not file.unsent_bytes and isinstance(file.errors.check(before), RuntimeError)
        await file.sync()
        assert isinstance(file.errors.check(before), RuntimeError), "nobody has been told"

    play(scene)


def test_a_cancelled_wait_for_a_sent_call_loses_nothing() -> None:
    async def scene(files: MemoryFiles, file: OpenFile) -> None:
        files.storage.pause_s = lambda: 0.01
        await file.append(b"abc")
        reading = asyncio.create_task(file.read(0, 3))
        await files.context.clock.sleep(0.005)
        await cancel_and_wait(reading)
        await file.sync()
        assert bytes(await AsyncFileSystem(files.context).read_file("/a")) == b"abc"

    play(scene)


def test_what_a_write_leaves_of_the_permissions() -> None:
    other, member = pb.Caller(uid=5, gid=6), pb.Caller(uid=5, gid=6, groups=[7])
    for mode, by_other, by_member in ((0o6755, 0o755, 0o755), (0o2644, 0o644, 0o2644), (0o4644, 0o644, 0o644)):
        inode = pb.Inode(mode=mode, gid=7)
        assert (mode_after_write(inode, other), mode_after_write(inode, member)) == (by_other, by_member)


def test_a_read_past_the_kernels_cache_finds_the_end_that_others_have_made() -> None:
    async def scene(files: MemoryFiles, file: OpenFile) -> None:
        await file.write(0, b"x" * 10)
        await file.sync()
        await AsyncFileSystem(files.context).write_file("/a", b"y" * 20)
        assert bytes(await file.read(5, 100, past_cache=True)) == b"y" * 15
        asked = len(files.peers.meta_calls)
        assert bytes(await file.read(5, 15, past_cache=True)) == b"y" * 15
        assert len(files.peers.meta_calls) == asked, "what lies before the end is read without asking"

    play(scene)


def test_what_is_appended_comes_behind_what_others_have_appended() -> None:
    async def scene(files: MemoryFiles, file: OpenFile) -> None:
        await file.write(0, b"written ")
        await file.append(b"one ")
        await file.append(b"two ")
        assert file.length == 16 and file.unsent_bytes == 16
        await AsyncFileSystem(files.context).write_file("/a", b"x" * 20)  # longer than what is known here
        await file.sync()
        assert file.length == 28 and not file.dirty and not file.unsent_bytes
        assert bytes(await file.read(0, 100)) == b"written " + b"x" * 12 + b"one two "

    play(scene)


def test_what_is_appended_stays_before_what_is_written_later() -> None:
    async def scene(files: MemoryFiles, file: OpenFile) -> None:
        await file.append(b"one")
        await file.write(5, b"x")
        await file.append(b"two")
        assert bytes(await file.read(0, 100)) == b"one\0\0xtwo"

    play(scene)


def test_appended_bytes_are_read_where_they_lie() -> None:
    async def scene(files: MemoryFiles, file: OpenFile) -> None:
        await file.append(b"one")
        assert bytes(await file.read(0, 100)) == b"one" and not file.unsent_bytes
        await file.append(b"x" * (5 << 20))
        await file.sync()
        assert files.meta.files[b"a"].length == 3 + (5 << 20)

    play(scene)


def test_a_write_without_the_right_to_keep_privileges_drops_them() -> None:
    async def scene(files: MemoryFiles, file: OpenFile) -> None:
        inode = files.meta.files[b"a"]
        inode.mode = 0o6755
        file.apply_inode(inode)
        await file.write(0, b"x", pb.Caller(uid=5))
        assert file.overlay_local(inode.__deepcopy__({})).mode == 0o755
        await file.sync()
        assert [request.caller.uid for _, name, request in files.peers.meta_calls if name == "Sync"] == [5]
        file.apply_inode(inode)
        await file.write(0, b"x", pb.Caller(uid=5))
        file.overlay_local(inode.__deepcopy__({}))
        await file.sync(only_data=True)  # others must not execute what is stored now with the privileges of before
        assert not file.dirty

    play(scene)


def test_fdatasync_stores_bytes_and_reports_only_what_readers_could_not_find() -> None:
    """A database that writes its log in place waits for the replicas, and not for the time of the change as well."""

    async def scene(files: MemoryFiles, file: OpenFile) -> None:
        async def reports(offset: int, data: bytes) -> int:
            await file.write(offset, data)
            before = len(files.peers.meta_calls)
            await file.sync(only_data=True)
            assert bytes(files.storage.data[ChunkId(file.inode.inode, 0)])[offset : offset + len(data)] == data
            return [name for _, name, _ in files.peers.meta_calls[before:]].count("Sync")

        assert await reports(0, b"longer" * 10) == 1
        assert await reports(5, b"in place") == 0 and file.dirty
        await files.meta._cut(files.meta.files[b"a"], 20)  # somebody else; the file does not know it yet
        assert await reports(0, b"in place") == 0 and await reports(56, b"behind it") == 1
        assert await reports(3, b"again") == 0
        await file.sync()
        assert not file.dirty
        await file.append(b"appended")
        await file.sync(only_data=True)
        assert files.peers.meta_calls[-1][1] == "Sync"

    play(scene)


@pytest.mark.parametrize("through_handle", [True, False])
def test_fdatasync_reports_the_length_of_a_file_that_was_truncated(through_handle: bool) -> None:
    """The length that was reported before the truncate says nothing about that after it."""

    async def scene(files: MemoryFiles, file: OpenFile) -> None:
        inode = files.meta.files[b"a"]
        await file.write(0, b"a log that begins anew" * 10)
        await file.sync()
        if through_handle:
            await file.truncate(0, pb.Caller(), through_handle=True)
        else:  # another client, and the kernel has asked for the attributes since
            await files.meta._cut(inode, 0)
            found = pb.Inode()
            found.CopyFrom(inode)
            file.overlay_local(found)
        await file.write(10, b"record")
        await file.sync(only_data=True)
        assert inode.length == 16

    play(scene)


def test_fdatasync_tells_of_bytes_that_were_lost() -> None:
    async def scene(files: MemoryFiles, file: OpenFile) -> None:
        await file.write(0, b"long enough")
        await file.sync()

        def refuse(write: Any, chain: Any, part: bytes) -> Any:
            raise StaleWrite("it came late")

        files.storage._apply = refuse  # type: ignore[method-assign]
        await file.write(0, b"x")
        with pytest.raises(StaleWrite):
            await file.sync(only_data=True)

    play(scene)


def test_a_read_beyond_the_known_end_asks_for_the_length() -> None:
    """The kernel has heard of the new length in another way, and fills a short answer with zeros."""

    async def scene(files: MemoryFiles, file: OpenFile) -> None:
        await AsyncFileSystem(files.context).write_file("/a", b"x" * 9000)
        file._handle.file.length = 100
        asked = len(files.peers.meta_calls)
        assert bytes(await file.read(0, 4096)) == b"x" * 100, "that is the last page, as far as is known"
        assert len(files.peers.meta_calls) == asked
        assert bytes(await file.read(0, 12288)) == b"x" * 9000

    play(scene)


def test_bytes_that_storage_refuses_after_a_lost_lock_are_no_stale_name() -> None:
    """A lease was lost with the lock, and the fence was raised: programs get EIO, and not ESTALE."""

    async def scene(files: MemoryFiles, file: OpenFile) -> None:
        await file.write(0, b"late")
        inode = files.meta.files[b"a"]
        inode.fence += 1
        for chain in files.cluster.routing.chains:
            files.storage.fences[chain, inode.inode] = inode.fence
        files.meta.lease += 1
        with pytest.raises(LockLost) as lost:
            await file.flush()
        assert lost.value.errno == errno.EIO

    play(scene)


def test_a_batch_of_chunks_of_which_one_fails_is_reported_as_unknown() -> None:
    """The other one may be there, and its bytes must not lie behind the end of the file."""

    async def scene(files: MemoryFiles, file: OpenFile) -> None:
        await file.write(0, b"x" * 2 * CHUNK)
        real, calls = files.storage._apply, []

        def apply(write: Any, chain: Any, part: bytes) -> Any:
            calls.append(write)
            if write.chunk.index == 0:
                raise StaleWrite("it came late")
            return real(write, chain, part)

        files.storage._apply = apply  # type: ignore[method-assign]
        with pytest.raises(StaleWrite):
            await file.flush()
        files.storage._apply = real  # type: ignore[method-assign]
        file._dirty_ns = 1
        await file.sync()
        syncs = [request for _, name, request in files.peers.meta_calls if name == "Sync"]
        assert syncs[-1].exact

    play(scene)
