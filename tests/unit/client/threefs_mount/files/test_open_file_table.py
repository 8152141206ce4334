import asyncio
import errno
import os
from typing import Any

import pytest
from threefs_client.async_filesystem import AsyncFileSystem
from threefs_mount.files.open_file_table import SYNC_AFTER_S, OpenFileTable

from tests.harness.memory_cluster import MemoryFiles
from tests.harness.open_files import ROOT, closed, copy_of, play
from threefs.errors import (
    ConnectionLost,
    LockLost,
    NotFound,
    OutcomeUnknown,
    QuotaExceeded,
    Unavailable,
)
from threefs.wire import meta_pb2 as pb


def shown(files: OpenFileTable, inode: pb.Inode) -> pb.Inode:
    """What the kernel gets, if the service has answered that to a question that is sent now."""
    return files.overlay_local(copy_of(inode), files._context.clock.monotonic())


def test_all_handles_of_a_file_share_one_session() -> None:
    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        reader, _ = await files.open(inode, os.O_RDONLY, ROOT)
        assert not memory.meta.sessions
        first, _ = await files.open(inode, os.O_WRONLY, ROOT)
        second, _ = await files.open(inode, os.O_RDWR, ROOT)
        assert len(memory.meta.sessions) == 1
        await files.write(first, 0, b"C")
        assert bytes(await files.handle(reader).file.read(0, 100)) == b"Content"
        await closed(files, first)
        assert len(memory.meta.sessions) == 1
        await closed(files, second)
        assert not memory.meta.sessions
        await closed(files, reader)
        assert files.get(inode) is None

    play(scene)


def test_two_opens_at_once_leave_one_session() -> None:
    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        numbers = await asyncio.gather(*(files.open(inode, os.O_WRONLY, ROOT) for _ in range(5)))
        assert len(memory.meta.sessions) == 1 and memory.context.lease._holders == 1
        for number, _ in numbers:
            await closed(files, number)
        assert not memory.meta.sessions

    play(scene)


@pytest.mark.parametrize("how", ["open", "create", "unnamed"])
@pytest.mark.parametrize("after", [False, True])
def test_the_session_of_an_open_whose_answer_was_lost_is_ended(how: str, after: bool) -> None:
    """It lived as long as the mount, and for as long a file that was removed kept its room."""

    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        memory.peers.meta_faults += [(after, ConnectionLost("gone"))] * 10_000
        with pytest.raises(OutcomeUnknown):
            if how == "open":
                await files.open(inode, os.O_RDWR, ROOT)
            else:
                place = pb.Place(base=1, path=b"" if how == "unnamed" else b"new")
                mutation = memory.context.meta.mutation()
                request = pb.CreateRequest(mutation=mutation, place=place, unnamed=how == "unnamed")
                await files.create(request, os.O_RDWR, ROOT)
        assert len(memory.meta.sessions | memory.meta.nameless.keys()) == after
        await asyncio.sleep(100)
        memory.peers.meta_faults.clear()
        await asyncio.sleep(100)
        assert not memory.meta.sessions and not memory.meta.nameless
        assert not memory.context.lease._holders and not len(memory.context.session_closer)

    play(scene)


def test_an_open_that_another_one_was_faster_than_works_although_its_own_session_cannot_be_ended() -> None:
    """It failed, and its handle stayed open for ever."""

    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        close, away = memory.meta._close, True

        async def closing(request: pb.CloseRequest) -> pb.InodeReply:
            if away:
                raise ConnectionLost("gone")
            return await close(request)

        memory.meta._close = closing  # type: ignore[method-assign]
        numbers = await asyncio.gather(*(files.open(inode, os.O_WRONLY, ROOT) for _ in range(2)))
        away = False
        await asyncio.sleep(60)
        assert len(memory.meta.sessions) == 1 and memory.context.lease._holders == 1
        for number, _ in numbers:
            await closed(files, number)
        assert not memory.meta.sessions and files.get(inode) is None

    play(scene)


def test_the_kernel_keeps_only_pages_of_unchanged_files() -> None:
    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        kept = []
        for change in (None, None, "here", None, "elsewhere", None):
            if change == "elsewhere":
                memory.meta.files[b"a"].change += 1
            number, keep = await files.open(inode, os.O_RDWR, ROOT)
            kept.append(keep)
            if change == "here":
                await files.write(number, 0, b"c")
            await closed(files, number)
        assert kept == [False, True, True, False, False, True]

    play(scene)


def test_the_kernel_is_notified_of_changes_elsewhere() -> None:
    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        told: list[int] = []
        files.on_attributes_changed = told.append
        shown(files, memory.meta.files[b"a"])
        await files.open(inode, os.O_RDONLY, ROOT)
        assert told == []
        memory.meta.files[b"a"].change += 1
        await files.open(inode, os.O_RDONLY, ROOT)
        assert told == [inode]

    play(scene)


def test_a_name_that_stands_for_another_file_is_looked_up_again() -> None:
    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        memory.meta.files[b"a"].nlink = 0
        for flags in (os.O_RDONLY, os.O_WRONLY):
            with pytest.raises(OSError, match="another file"):
                await files.open(inode, flags, ROOT)
        assert not memory.meta.sessions
        memory.peers.meta_faults.append((False, NotFound("it is gone")))
        with pytest.raises(OSError, match="another file") as caught:
            await files.open(inode, os.O_RDWR, ROOT)
        assert caught.value.errno == errno.ESTALE and memory.context.lease._holders == 0

    play(scene)


def test_a_reader_holds_its_file() -> None:
    """Also beside a writer: when that closed a file that had lost its last name, the file was freed under the
    reader."""

    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        lease = memory.context.lease
        number, _ = await files.open(inode, os.O_RDONLY, ROOT)
        assert inode in lease._read_opens
        writer, _ = await files.open(inode, os.O_WRONLY, ROOT)
        assert lease._holders == 1
        await asyncio.sleep(lease.duration_s)
        assert inode in memory.meta.held, "at the latest when a removed file would be freed but for the writer"
        await closed(files, writer)
        await asyncio.sleep(lease.duration_s)
        assert inode in memory.meta.held and lease._holders == 0
        await closed(files, number)
        await asyncio.sleep(lease.duration_s)
        assert lease._is_idle and not memory.meta.held

    play(scene)


def lose_session(memory: MemoryFiles) -> None:
    """The lease has expired, and there is a new one."""
    memory.meta.lease += 1
    memory.context.lease.granted(memory.meta.lease)
    memory.meta.sessions.clear()


def test_a_lost_session_is_opened_anew() -> None:
    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        number, _ = await files.open(inode, os.O_WRONLY, ROOT)
        await files.write(number, 0, b"one")
        await files.handle(number).file.flush()
        lose_session(memory)
        await files.write(number, 7, b" two")
        await closed(files, number)
        assert memory.meta.files[b"a"].length == 11 and not memory.meta.sessions

    play(scene)


@pytest.mark.parametrize("how", ["append", "copy"])
def test_what_was_under_way_when_the_session_was_lost_is_reported(how: str) -> None:
    """It arrived after another program had opened the file, and a sync reported nothing: the bytes were durable, and
    behind the end of the file."""

    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        number, _ = await files.open(inode, os.O_RDWR, ROOT)
        changing: asyncio.Future[Any]
        if how == "append":
            await files.write(number, 0, b" and more", append=True)
            changing = asyncio.ensure_future(files.handle(number).file.flush())
        else:
            await AsyncFileSystem(memory.context).write_file("/b", b" and more")
            source, _ = await files.open(memory.meta.files[b"b"].inode, os.O_RDONLY, ROOT)
            changing = asyncio.ensure_future(files.copy(source, 0, number, 7, 100))
        memory.storage.pause_s, before = lambda: 0.1, len(memory.storage.calls)
        while "Write" not in [name for _, name, _ in memory.storage.calls[before:]]:
            await asyncio.sleep(0.01)
        lose_session(memory)
        other, _ = await files.open(inode, os.O_WRONLY, ROOT)
        await files.handle(other).sync()
        await changing
        await files.handle(number).sync()
        assert memory.meta.files[b"a"].length == 16
        assert await AsyncFileSystem(memory.context).read_file("/a") == b"content and more"

    play(scene)


def test_a_late_answer_takes_no_write_back() -> None:
    """`ls -l` had asked before the file was truncated. With the answer, the mount forgot what was written since: the
    program read the end of the file over its own bytes, and the next bytes at the end replaced them."""

    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        found = memory.meta.files[b"a"]
        found.change, found.moves = 1, 1
        late = copy_of(found)
        number, _ = await files.open(inode, os.O_RDWR, ROOT)
        file = files.handle(number).file
        await files.truncate(number, 0, ROOT)
        await files.write(number, 0, b"x" * 1000)
        await file.flush()
        found.moves = 2
        for answer in (late, found, late):
            assert shown(files, answer).length == 1000 == file.length
        await file.sync(only_data=True)
        assert found.length == 1000, "the truncate is not forgotten either"
        await file.sync()
        assert shown(files, late).length == 1000 and not file.dirty
        assert files.kernel_attrs.moves(inode) == 1, "the name is one from before it was moved"

    play(scene)


def test_metadata_that_were_restored_may_be_older() -> None:
    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        found = memory.meta.files[b"a"]
        found.change, backup = 2, copy_of(found)
        backup.change, backup.length = 1, 3
        reader, _ = await files.open(inode, os.O_RDONLY, ROOT)
        writer, _ = await files.open(inode, os.O_WRONLY, ROOT)
        await closed(files, writer)
        assert shown(files, backup).length == 7
        memory.context.lease.granted(memory.context.lease.number + 1)
        assert shown(files, backup).length == 3
        await closed(files, reader)

    play(scene)


def test_a_reader_knows_the_length_when_the_writer_has_closed_the_file() -> None:
    """It knew that of the last question of the kernel, and the kernel believes a short read."""

    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        reader, _ = await files.open(inode, os.O_RDONLY, ROOT)
        writer, _ = await files.open(inode, os.O_WRONLY, ROOT)
        await files.write(writer, 0, b"longer than it was")
        await files.handle(writer).flush()
        await closed(files, writer)
        assert bytes(await files.handle(reader).file.read(0, 100)) == b"longer than it was"
        await closed(files, reader)

    play(scene)


def test_a_write_that_waits_for_room_is_reported_as_that_of_its_user() -> None:
    """A sync of earlier writes ended while it waited, and forgot who writes: a program with set-user-id kept that, with
    bytes of a user."""

    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        found = memory.meta.files[b"a"]
        found.change, found.mode = 1, 0o4755
        told: list[int] = []
        files.on_attributes_changed = told.append
        number, _ = await files.open(inode, os.O_RDWR, ROOT)
        told.clear()
        await files.write(number, 0, b"root")
        asked, may_answer, settle = asyncio.Event(), asyncio.Event(), memory.meta._sync

        async def slow(request: pb.SyncRequest) -> pb.InodeReply:
            asked.set()
            await may_answer.wait()
            return await settle(request)

        memory.meta._sync = slow  # type: ignore[method-assign]
        syncing = asyncio.ensure_future(files.handle(number).sync())
        await asked.wait()
        assert files._budget.try_take(1 << 20)  # other files hold as much as may be held
        writing = asyncio.ensure_future(files.write(number, 0, b"user", writer=pb.Caller(uid=5)))
        await asyncio.sleep(0)
        may_answer.set()
        await syncing
        assert not writing.done() and not told
        files._budget.give(1 << 20)
        await writing
        assert shown(files, found).mode == 0o755 and told == [inode]
        await files.handle(number).sync()
        callers = [request.caller.uid for _, name, request in memory.peers.meta_calls if name == "Sync"]
        assert callers == [0, 5]

    play(scene)


@pytest.mark.parametrize("append", [False, True])
def test_a_write_that_fails_takes_no_privileges(append: bool) -> None:
    """The mount hid them, and the next write of the super-user took them away."""

    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        found = memory.meta.files[b"a"]
        found.mode, memory.meta.over_quota = 0o4755, True
        number, _ = await files.open(inode, os.O_RDWR, ROOT)
        with pytest.raises(QuotaExceeded):
            await files.write(number, 7, b"more", append=append, writer=pb.Caller(uid=5))
        assert shown(files, found).mode == 0o4755
        await files.write(number, 0, b"C")
        assert shown(files, found).mode == 0o4755
        await files.handle(number).sync()
        callers = {request.caller.uid for _, name, request in memory.peers.meta_calls if name == "Sync"}
        assert callers == {0}

    play(scene)


def test_at_the_end_everything_is_stored() -> None:
    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        number, _ = await files.open(inode, os.O_WRONLY, ROOT)
        files.start()
        await files.write(number, 0, b"x" * (3 << 20))  # more than all may hold
        await files.stop()
        assert memory.meta.files[b"a"].length == 3 << 20 and not memory.meta.sessions

    play(scene)


@pytest.mark.slow
@pytest.mark.parametrize("fails", [False, True])
def test_a_file_that_cannot_be_synced_delays_no_other(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never() -> None:
        if fails:
            raise RuntimeError("a fault of ours")
        await asyncio.Event().wait()

    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        files.start()
        stuck, _ = await files.open(inode, os.O_WRONLY, ROOT)
        request = pb.CreateRequest(place=pb.Place(path=b"new"), mutation=memory.context.meta.mutation())
        other, _ = await files.create(request, os.O_WRONLY, ROOT)
        with monkeypatch.context() as patch:
            patch.setattr(files.handle(stuck).file, "sync", never)
            await files.write(stuck, 0, b"x")
            for length in (10, 20, 30):
                await files.write(other, 0, b"x" * length)
                await memory.context.clock.sleep(3 * SYNC_AFTER_S)
                assert memory.meta.files[b"new"].length == length, "others see what was written a while ago"
        await files.stop()
        assert not memory.meta.sessions

    play(scene)


def test_what_is_written_without_a_pause_is_seen_by_others_all_the_same() -> None:
    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        files.start()
        number, _ = await files.open(inode, os.O_WRONLY, ROOT)
        for written in range(1, 30):
            await files.write(number, written, b"x")
            await memory.context.clock.sleep(SYNC_AFTER_S / 3)
            assert memory.meta.files[b"a"].length >= written - 9, "at most three seconds late"
        await files.stop()

    play(scene)


def test_a_stop_takes_no_longer_than_a_call_if_no_peer_answers() -> None:
    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        files.start()
        number, _ = await files.open(inode, os.O_WRONLY, ROOT)
        await files.write(number, 0, b"held")
        memory.storage.down |= {node.address for node in memory.cluster.routing.nodes.values()}
        memory.peers.meta_faults = [(False, Unavailable("it is down"))] * 100_000
        began_s = memory.context.clock.monotonic()
        await files.stop()
        assert memory.context.clock.monotonic() - began_s <= memory.context.options.timeout_s + 0.1
        memory.peers.meta_faults.clear()

    play(scene)


def test_a_close_waits_for_an_unsynced_file() -> None:
    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        number, _ = await files.open(inode, os.O_WRONLY, ROOT)
        await files.write(number, 0, b"longer than it was")
        ending = files.release(number)
        assert ending is not None
        await ending
        assert memory.meta.files[b"a"].length == 18 and not memory.meta.sessions

    play(scene)


def test_a_file_does_not_grow_once_the_quota_is_used_up() -> None:
    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        memory.meta.over_quota = True
        number, _ = await files.open(inode, os.O_RDWR, ROOT)
        reader, _ = await files.open(inode, os.O_RDONLY, ROOT)  # which tells nothing of quotas
        for append in (False, True):
            assert not files.try_write(number, 7, b"more", append=append)
            with pytest.raises(QuotaExceeded):
                await files.write(number, 7, b"more", append=append)
        await files.write(number, 0, b"C")
        memory.meta.over_quota = False
        await files.write(number, 7, b" and more")
        memory.meta.over_quota = True
        await files.handle(number).sync()
        with pytest.raises(QuotaExceeded):
            await files.write(number, 15, b"!!")
        await closed(files, reader)
        await closed(files, number)
        assert await AsyncFileSystem(memory.context).read_file("/a") == b"Content and more"

    play(scene)


def test_a_file_that_grows_for_long_is_reported_before_it_rests() -> None:
    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        memory.meta.files[b"a"].tree = 1
        number, _ = await files.open(inode, os.O_RDWR, ROOT)
        memory.meta.over_quota = True
        with pytest.raises(QuotaExceeded):
            for place in range(200):
                await files.write(number, place << 20, b"x" * (1 << 20))
        assert files.handle(number).file.length <= (64 + 16 + 1) << 20

    play(scene)


def test_a_program_that_has_the_file_open_when_a_lock_is_lost_begins_anew() -> None:
    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        lost: list[int] = []
        files.on_lost = lost.append
        old, _ = await files.open(inode, os.O_RDWR, ROOT)
        await files.write(old, 0, b"under it")
        files.on_locks_lost(inode)
        assert lost == [inode] and not files.handle(old).file.unsent_bytes
        new, _ = await files.open(inode, os.O_RDWR, ROOT)
        assert not files.try_write(old, 0, b"x")
        for call in (files.write(old, 0, b"x"), files.truncate(old, 0, ROOT), files.handle(old).sync()):
            with pytest.raises(LockLost):
                await call
        await files.write(new, 0, b"C")
        with pytest.raises(LockLost):
            await files.handle(new).sync()  # nobody was told of the bytes that are lost
        await files.handle(new).sync()
        with pytest.raises(LockLost):
            await files.handle(old).flush()
        await closed(files, old)
        await closed(files, new)
        assert await AsyncFileSystem(memory.context).read_file("/a") == b"Content"

    play(scene)


def test_what_waits_for_room_when_a_lock_is_lost_is_not_taken() -> None:
    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        number, _ = await files.open(inode, os.O_RDWR, ROOT)
        assert files._budget.try_take(1 << 20)  # other files hold as much as may be held
        waiting = [asyncio.ensure_future(files.write(number, 0, b"late", append=append)) for append in (False, True)]
        await asyncio.sleep(0)
        files.on_locks_lost(inode)
        again, _ = await files.open(inode, os.O_RDWR, ROOT)
        files._budget.give(1 << 20)
        for write in waiting:
            with pytest.raises(LockLost):
                await write
        assert not files.handle(again).file.unsent_bytes and files._budget.try_take(1 << 20)
        files._budget.give(1 << 20)
        await closed(files, again)
        with pytest.raises(LockLost):
            await files.handle(number).flush()
        await closed(files, number)
        assert await AsyncFileSystem(memory.context).read_file("/a") == b"content"

    play(scene)
