"""I14: a buffer belongs to a call until every piece of work that may touch it has ended.

Pools poison what comes back (tests/conftest.py), so bytes that are used too late are wrong ones.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from threefs_storage.chain.shared_messages import SharedMessages
from threefs_storage.chain.successor import Successor
from threefs_storage.chain.write_messages import WholeChunk
from threefs_storage.engine.exactly_once import NOTHING_FORGOTTEN
from threefs_storage.engine.overlay import OverlayLimits
from threefs_storage.peer_targets import PeerTargets

from tests.harness.chain_harness import Gate, TestChain, cancelled, chain_of, until
from threefs.checksums import crc32c
from threefs.env.clock import CLOCK
from threefs.env.net import Buffer
from threefs.errors import InProgress, ThreefsError
from threefs.ids import ChunkId
from threefs.rpc.methods import FETCH_CHUNK, STAGE_AHEAD, WRITE, Method
from threefs.rpc.traffic_class import TrafficClass
from threefs.wire import storage_pb2 as pb

A, B, C, BUSY, OTHER = (ChunkId(7, number) for number in range(1, 6))
SIZE = 40_000
STRANGER = bytes(16 * [8])


async def send_all(
    chain: TestChain, rows: list[pb.ChunkWrite], payload: bytes, answer_after_ms: int = 0
) -> pb.WriteReply:
    request = pb.WriteRequest(writes=rows, answer_after_ms=answer_after_ms)
    return await chain.peers.call(chain[1].address, WRITE, request, timeout_s=20, payload=[payload])


async def fill_buffers(chain: TestChain, size: int) -> None:
    """Somebody else's request of that size takes whatever buffer is free, and is refused."""
    strange = chain.row(b"Z" * size, chunk=OTHER, client=STRANGER)
    strange.chain_version += 1
    with pytest.raises(ThreefsError):
        await chain.send(strange, b"Z" * size)


class Held(Gate):
    """Holds back what is forwarded of BUSY: the others of a batch go on, it waits for the lock."""

    async def __call__(self, method: Method[Any, Any], request: Any) -> None:
        if method is WRITE and request.writes[0].chunk.index == BUSY.number:
            await self.passed()


async def same_everywhere(chain: TestChain, chunk: ChunkId, expected: bytes) -> None:
    await until(lambda: not any(set(replica.target.engine.pending()) - {BUSY} for replica in chain.replicas))
    for replica in chain.replicas:
        _, content = await chain.read(replica.node, chunk)
        assert content == expected, f"node {replica.node}: {set(content)}"


@pytest.mark.parametrize("where", ["read", "sync"])
async def test_a_batch_keeps_its_payload_until_the_last_of_its_writes_has_ended(tmp_path: Path, where: str) -> None:
    """One row waits for a lock, and ends at once when the batch is cancelled. The other is at the disk."""
    async with chain_of(tmp_path, 2) as chain:
        head = chain[1]
        old = bytes(300_000)
        await chain.write(old, chunk=A)
        await chain.write(b"x", chunk=BUSY)
        forward = head.peers.before = Gate()  # another client's write of BUSY has its lock
        other = asyncio.create_task(chain.write(b"other", chunk=BUSY, client=bytes(16 * [9])))
        await forward.reached.wait()
        hold = Gate()
        if where == "read":  # the old content, for an overwrite of a part
            head.disk.hold_read = hold
        else:  # an append lies in the payload until it is written
            head.disk.hold_sync = hold
        offset = 1000 if where == "read" else len(old)
        rows = [chain.row(b"b" * SIZE, chunk=BUSY), chain.row(b"a" * SIZE, offset, chunk=A)]
        lent = head.server.pool.lent
        batch = asyncio.create_task(send_all(chain, rows, b"b" * SIZE + b"a" * SIZE))
        await hold.reached.wait()
        await cancelled(batch)  # its attempt is out of time
        for _ in range(20):
            await asyncio.sleep(0.002)
        assert head.server.pool.lent > lent, "the disk is still at it"
        await fill_buffers(chain, 2 * SIZE)
        head.disk.hold_read = head.disk.hold_sync = None
        hold.open.set()
        head.peers.before = None
        forward.open.set()
        await asyncio.gather(other, return_exceptions=True)
        rows[1].again = True
        assert (await chain.send(rows[1], b"a" * SIZE)).version == 2
        await same_everywhere(chain, A, old[:offset] + b"a" * SIZE + old[offset + SIZE :])


async def test_a_batch_that_is_answered_early_keeps_its_payload_and_a_repeat_gets_the_result(tmp_path: Path) -> None:
    """One chunk is slow. The other one's result comes without it, and what is slow goes on."""
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"x", chunk=BUSY)
        forward = chain[1].peers.before = Held()
        other = asyncio.create_task(chain.write(b"other", chunk=BUSY, client=bytes(16 * [9])))
        await forward.reached.wait()
        rows = [chain.row(b"b" * SIZE, chunk=BUSY), chain.row(b"a" * SIZE, chunk=A)]
        lent = chain[1].server.pool.lent
        for after_ms in (50, 500, 5000, 15_000):  # a busy disk may need longer for the other one
            reply = await send_all(chain, rows, b"b" * SIZE + b"a" * SIZE, answer_after_ms=after_ms)
            rows[0].again = rows[1].again = True
            if reply.results[1].code != InProgress.code:
                break
        assert [result.code for result in reply.results] == [InProgress.code, 0]
        assert reply.results[1].version == 1
        assert chain[1].server.pool.lent > lent, "the slow one still needs it"
        await fill_buffers(chain, 2 * SIZE)
        repeat = asyncio.create_task(chain.send(rows[0], b"b" * SIZE))
        forward.open.set()
        await other
        assert (await repeat).version == 3, "it was made once"
        await same_everywhere(chain, A, b"a" * SIZE)
        await same_everywhere(chain, BUSY, b"b" * SIZE)


async def test_a_batch_that_ends_in_time_is_answered_as_a_whole(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        rows = [chain.row(b"a", chunk=A), chain.row(b"b", chunk=B)]
        reply = await send_all(chain, rows, b"ab", answer_after_ms=20_000)
        assert [(result.code, result.version) for result in reply.results] == [(0, 1)] * 2
        single = await send_all(chain, [chain.row(b"c", chunk=A)], b"c", answer_after_ms=20_000)
        assert [(result.code, result.version) for result in single.results] == [(0, 2)]


async def test_a_batch_may_be_cancelled_at_any_moment(tmp_path: Path) -> None:
    """After each number of turns of the loop. The rows: part of a chunk, an append, a whole chunk, one that waits."""
    async with chain_of(tmp_path, 2) as chain:
        a, b = bytes(300_000), b"0123456789"
        await chain.write(a, chunk=A)
        await chain.write(b, chunk=B)
        held = Held()
        chain[1].peers.before = held
        other = asyncio.create_task(chain.write(b"other", chunk=BUSY, client=bytes(16 * [9])))
        await held.reached.wait()
        for turns in range(60):
            mine = bytes([turns + 1]) * SIZE
            chain[1].disk.cold = turns % 2 == 0
            rows = [
                chain.row(mine, 1000 + turns, chunk=A),
                chain.row(mine[:100], len(b), chunk=B),
                chain.row(mine, chunk=C),
                chain.row(mine[:100], chunk=BUSY),
            ]
            batch = asyncio.create_task(send_all(chain, rows, mine + mine[:100] + mine + mine[:100]))
            for _ in range(turns):
                await asyncio.sleep(0)
            await cancelled(batch)
            await fill_buffers(chain, 2 * SIZE + 200)
            a = a[: 1000 + turns] + mine + a[1000 + turns + SIZE :]
            b += mine[:100]
            for row, content in zip(rows[:3], (mine, mine[:100], mine), strict=True):
                row.again = True
                await chain.send(row, content)
            await same_everywhere(chain, A, a)
            await same_everywhere(chain, B, b)
            await same_everywhere(chain, C, mine)
        held.open.set()
        await other


async def test_reads_and_fetches_may_be_cancelled_at_any_moment(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        content = bytes(range(256)) * 1200
        await chain.write(content, chunk=A)
        chain[1].disk.cold = True
        for turns in range(40):
            rows = [(A, 0, len(content)), (A, 5000, 100_000), (BUSY, 0, 10)]
            read = asyncio.create_task(chain.read_rows(1, rows))
            fetch = asyncio.create_task(fetched(chain))
            for _ in range(turns):
                await asyncio.sleep(0)
            await cancelled(read)
            await cancelled(fetch)
            await fill_buffers(chain, len(content))
            assert (await chain.read(1, A))[1] == content
        await chain.idle()


async def fetched(chain: TestChain) -> None:
    """A whole chunk, as a replica that repairs asks for it."""
    got = bytearray()

    def sink(_: pb.FetchChunkReply, length: int) -> list[memoryview]:
        got.extend(bytes(length))
        return [memoryview(got)]

    request = pb.FetchChunkRequest(
        target=chain[1].target_id, chain_version=chain.version, inode=A.inode, index=A.number
    )
    await chain.peers.call(chain[1].address, FETCH_CHUNK, request, timeout_s=20, sink=sink)


async def test_what_is_shipped_may_be_cancelled_while_the_successor_takes_nothing(tmp_path: Path) -> None:
    """The link must not send from a buffer that has come back: what it sends instead, the successor refuses."""
    async with chain_of(tmp_path, 2) as chain:
        head, tail = chain[1], chain[2]
        content = b"c" * (1 << 20)
        await chain.write(content, chunk=A)
        connection = await head.peers.connect(tail.address, 5, TrafficClass.REPLICATION)
        seen: list[bytes] = []
        sessions = list(tail.server._connections)
        stream = connection._stream._stream
        passed = stream.send
        stream.send = lambda pieces: _blocked()  # type: ignore[method-assign]
        peers = PeerTargets(head.peers, lambda: head.cluster.routing)
        successor = Successor(peers, SharedMessages(peers, clock=CLOCK), clock=CLOCK, pool=head.server.pool)
        member = head.target.chain.successor(head.target_id)
        committed = head.record(A).committed
        assert member is not None and committed is not None
        ship = asyncio.create_task(
            successor.send_whole_chunk(
                head.target, member, WholeChunk(A, committed, (), NOTHING_FORGOTTEN), CLOCK.monotonic() + 20
            )
        )
        await until(lambda: head.server.pool.lent > 0)
        for _ in range(10):
            await asyncio.sleep(0.002)
        assert connection._stream.sending, "the chunk waits on the connection that is blocked"
        await cancelled(ship)
        assert head.server.pool.lent == 0, "it is poisoned now"

        def noted(pieces: Sequence[Buffer]) -> int:
            taken = passed(pieces)
            seen.append(b"".join(bytes(piece) for piece in pieces)[:taken])
            return taken

        stream.send = noted  # type: ignore[method-assign]
        connection._stream._writable()
        for _ in range(50):
            await asyncio.sleep(0.002)
        assert b"\xdb" * 16 not in b"".join(seen)
        assert sessions and (await chain.write(b"new", chunk=B)).version == 1, "the connection goes on"


async def test_a_payload_that_goes_ahead_is_not_sent_after_its_write_has_ended(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        head, tail = chain[1], chain[2]
        await chain.write(b"old", chunk=A)
        connection = await head.peers.connect(tail.address, 5, TrafficClass.REPLICATION)
        seen: list[bytes] = []
        stream = connection._stream._stream
        passed = stream.send
        stream.send = lambda pieces: _blocked()  # type: ignore[method-assign]
        write = asyncio.create_task(chain.write(b"n" * (1 << 20), chunk=A))
        await until(lambda: head.pending(A) == 2)
        assert head.peers.count(STAGE_AHEAD) == 1
        seen_all = asyncio.Event()

        async def hold() -> None:
            """The next change would fill the same buffer with the same bytes."""
            async with head.target.locks.hold(A, 20):
                await seen_all.wait()

        holder = asyncio.create_task(hold())
        assert connection._stream.sending, "it waits on the connection that is blocked"
        await cancelled(write)
        await until(lambda: not any(each.calls for each in head.server._connections))  # the buffer is poisoned now

        def noted(pieces: Sequence[Buffer]) -> int:
            taken = passed(pieces)
            seen.append(b"".join(bytes(piece) for piece in pieces)[:taken])
            return taken

        stream.send = noted  # type: ignore[method-assign]
        connection._stream._writable()
        seen_all.set()
        await holder
        await until(lambda: tail.committed(A) == 2)  # it is finished in the background
        assert b"\xdb" * 16 not in b"".join(seen)
        assert await chain.read(2, chunk=A) == (2, b"n" * (1 << 20))


async def test_changes_that_share_a_message_are_sent_from_a_copy(tmp_path: Path) -> None:
    """The message goes on when one of them was cancelled, and the buffer in which it came is another one's."""
    async with chain_of(tmp_path, 2, overlay=OverlayLimits()) as chain:
        head, tail = chain[1], chain[2]
        await send_all(chain, [chain.row(b"old", chunk=A), chain.row(b"old", chunk=B)], b"oldold")
        connection = await head.peers.connect(tail.address, 5, TrafficClass.REPLICATION)
        stream = connection._stream._stream
        passed = stream.send
        stream.send = lambda pieces: _blocked()  # type: ignore[method-assign]
        messages, payloads = head.storage._writes._messages, [bytearray(b"a" * 9000), bytearray(b"b" * 9000)]
        messages.expect_several()
        cancelled_one, other = [
            messages.begin_ahead(
                tail.target_id, chain.ahead_row(2, bytes(content), 2, chunk=chunk), content, 0, lambda: None
            )
            for chunk, content in zip((A, B), payloads, strict=True)
        ]
        assert cancelled_one is not None and other is not None
        await until(lambda: connection._stream.sending)
        cancelled_one.cancel()
        for payload in payloads:
            payload[:] = bytes(9000)
        stream.send = passed  # type: ignore[method-assign]
        connection._stream._writable()
        await other
        for chunk, content in ((A, b"a" * 9000), (B, b"b" * 9000)):
            pending = tail.record(chunk).pending
            assert pending is not None and pending.checksum == crc32c(content)


def _blocked() -> int:
    raise BlockingIOError
