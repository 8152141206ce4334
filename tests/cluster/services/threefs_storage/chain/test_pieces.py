"""Changes of several pieces, at a chain of real services."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from threefs_storage.chain.pieces import pieces_of
from threefs_storage.engine.overlay import OverlayLimits
from threefs_storage.engine.scratch import Scratch, ScratchShare
from threefs_storage.engine.working_memory import JOINED_BYTES

from tests.harness.chain_harness import (
    CHUNK,
    CHUNK_BYTES,
    CLIENT,
    OFFLINE,
    SERVING,
    Gate,
    TestChain,
    cancelled,
    chain_of,
    until,
)
from threefs.env.clock import CLOCK
from threefs.errors import (
    ChainChanged,
    ChecksumMismatch,
    ChunkLost,
    DeadlineExceeded,
    InvalidArgument,
    StaleFence,
    ThreefsError,
    Unavailable,
)
from threefs.ids import ChunkId
from threefs.layout import FENCE_CHUNK, MAX_CHUNK_BYTES
from threefs.rpc.methods import WRITE
from threefs.wire import storage_pb2 as pb

Pieces = Sequence[tuple[int, bytes]]


def row(chain: TestChain, pieces: Pieces, **more: Any) -> tuple[pb.ChunkWrite, bytes]:
    payload = b"".join(data for _, data in pieces)
    numbers = [number for offset, data in pieces for number in (offset, len(data))]
    offset = pieces[0][0] if pieces else 0
    return chain.row(payload, offset, kind=pb.WRITE_PIECES, pieces=numbers, **more), payload


def over(content: bytes, pieces: Pieces) -> bytes:
    whole = bytearray(content)
    for offset, data in pieces:
        whole.extend(bytes(max(0, offset + len(data) - len(whole))))
        whole[offset : offset + len(data)] = data
    return bytes(whole)


@pytest.mark.parametrize("overlay", [OverlayLimits(), None])
async def test_pieces_lie_over_what_is_committed(tmp_path: Path, overlay: OverlayLimits | None) -> None:
    dice, limits = Random(61), {} if overlay is None else {"overlay": overlay}
    async with chain_of(tmp_path, 3, **limits) as chain:
        content = b""
        for version in range(1, 16):
            ends = sorted(dice.sample(range(dice.choice([300, 70_000, CHUNK_BYTES])), 8))
            pieces = [(begin, dice.randbytes(end - begin)) for begin, end in zip(ends[::2], ends[1::2], strict=True)]
            result = await chain.send(*row(chain, pieces))
            content = over(content, pieces)
            assert (result.version, result.length) == (version, len(content)), "they are one version"
            for node in (1, 2, 3):
                assert await chain.read(node) == (version, content)
        assert chain[1].state() == chain[2].state() == chain[3].state()


async def test_what_another_client_writes_between_the_pieces_stays(tmp_path: Path) -> None:
    """The bytes between them are read under the lock under which they are written again."""
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"." * 300_000)
        chain[1].disk.cold = True
        gate = chain[1].disk.hold_read = Gate()
        pieces = [(0, b"first"), (200_000, b"last")]
        joined = asyncio.create_task(chain.send(*row(chain, pieces)))
        await gate.reached.wait()
        between = asyncio.create_task(chain.write(b"between", 100_000, client=b"o" * 16))
        await asyncio.sleep(0.05)
        chain[1].disk.hold_read = None
        gate.open.set()
        await asyncio.gather(joined, between)
        expected = over(b"." * 300_000, [*pieces, (100_000, b"between")])
        assert await chain.read(2) == (3, expected)


async def begun(chain: TestChain, **more: Any) -> tuple[Gate, asyncio.Task[Any]]:
    """The head is reading what lies between the pieces."""
    await chain.write(b"." * 300_000)
    chain[1].disk.cold = True
    gate = chain[1].disk.hold_read = Gate()
    joined = asyncio.create_task(chain.send(*row(chain, [(0, b"first"), (200_000, b"last")], **more)))
    await gate.reached.wait()
    return gate, joined


async def test_no_byte_shows_once_a_fence_was_raised_while_the_head_read(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        gate, joined = await begun(chain, fence=5)
        fence = ChunkId(CHUNK.inode, FENCE_CHUNK)
        raising = asyncio.create_task(chain.write(b"", chunk=fence, kind=pb.EXTEND, length=5))
        await until(lambda: chain[1].target.engine.fences.get(CHUNK.inode) == 5)
        await asyncio.sleep(0.05)
        assert not raising.done(), "the next holder of the lock waits for its end"
        gate.open.set()
        with pytest.raises(StaleFence):
            await joined
        await raising
        assert await chain.read(2) == (1, b"." * 300_000)


async def test_a_change_that_ends_while_the_head_reads_has_no_effect(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        gate, joined = await begun(chain)
        chain.change((1, SERVING), (2, OFFLINE))
        gate.open.set()
        with pytest.raises(ChainChanged):
            await joined
        await chain.write(b"x" * 300_000)
        gate, joined = await begun(chain)
        await cancelled(joined)
        gate.open.set()
        chain[1].disk.hold_read = None
        await chain.idle()
        assert chain[1].target.engine.joined.lent_bytes == 0
        assert await chain.read(1) == (3, b"." * 300_000)


async def test_a_repeat_is_answered_and_changes_nothing(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"." * 100)
        sent = row(chain, [(0, b"a"), (50, b"b")])
        first = await chain.send(*sent)
        await chain.write(b"later", 10, client=b"o" * 16)
        again = await chain.send(*sent)
        assert (again.version, again.length) == (first.version, first.length) == (2, 100)
        assert await chain.read(2) == (3, over(b"." * 100, [(0, b"a"), (50, b"b"), (10, b"later")]))


async def test_a_head_that_has_not_answered_leaves_a_change_that_its_repeat_finds(tmp_path: Path) -> None:
    """The new head makes the plain write anew, over what is committed there: nothing is made twice, nothing is lost."""
    async with chain_of(tmp_path, 3) as chain:
        await chain.write(b"." * 100)
        change, payload = row(chain, [(0, b"a"), (50, b"b")])
        await chain.give_up(1, change, payload)
        await chain[1].stop()
        chain.change((2, chain.members[1][1]), (3, chain.members[2][1]))
        again, _ = row(chain, [(0, b"a"), (50, b"b")], node=2, seq=change.identity.seq, again=True)
        result = await chain.send(again, payload)
        expected = over(b"." * 100, [(0, b"a"), (50, b"b")])
        assert result.version == 2 and await chain.read(2) == await chain.read(3) == (2, expected)


BAD: list[tuple[list[int], bytes]] = [
    ([], b""),
    ([0, 2], b"abc"),
    ([0, 2, 5], b"ab"),
    ([0, 3, 2, 3], b"abcdef"),
    ([5, 3, 0, 3], b"abcdef"),
    ([0, 0, 5, 3], b"abc"),
    ([0, 3, CHUNK_BYTES - 2, 3], b"abcdef"),
    ([0, 3, (1 << 32) - 1, 3], b"abcdef"),
    ([0, 3, MAX_CHUNK_BYTES, 3], b"abcdef"),
    ([number for at in range(257) for number in (at, 1)], b"x" * 257),
]


@pytest.mark.parametrize(("numbers", "payload"), BAD)
async def test_pieces_that_cannot_be_are_refused(tmp_path: Path, numbers: list[int], payload: bytes) -> None:
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"content")
        with pytest.raises(InvalidArgument):
            await chain.send(chain.row(payload, kind=pb.WRITE_PIECES, pieces=numbers), payload)
        unbounded = chain.row(payload, kind=pb.WRITE_PIECES, pieces=numbers, chunk_bytes=(1 << 32) - 1)
        with pytest.raises(InvalidArgument):
            pieces_of(unbounded)
        assert await chain.read(2) == (1, b"content")


async def refusal(chain: TestChain, **more: Any) -> ThreefsError:
    with pytest.raises(ThreefsError) as caught:
        await chain.send(*row(chain, [(0, b"a"), (3, b"b")], **more))
    return caught.value


async def test_pieces_are_refused_where_a_plain_write_would_be(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"content")
        assert isinstance(await refusal(chain, checksum=1), ChecksumMismatch)
        assert isinstance(await refusal(chain, node=2, version=2), InvalidArgument), "only clients send them"
        await chain.write(chunk=ChunkId(CHUNK.inode, FENCE_CHUNK), content=b"", kind=pb.EXTEND, length=5)
        assert isinstance(await refusal(chain, fence=5), StaleFence)
        chain[1].target.damaged[CHUNK] = None
        assert isinstance(await refusal(chain), Unavailable), "bytes between them would come from a damaged copy"
        del chain[1].target.damaged[CHUNK]
        committed = chain[1].record().committed
        assert committed is not None
        chain[1].target.engine.mark_lost(CHUNK, committed)
        assert isinstance(await refusal(chain), ChunkLost)
        assert chain[2].record().entry(CLIENT, 1) is not None


async def test_bytes_between_the_pieces_that_the_disk_cannot_read_are_damage(tmp_path: Path) -> None:
    """The chunk is repaired from another replica, and the change that comes again finds the bytes."""
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"x" * 20_000)
        chain[1].spoil_block()
        change, payload = row(chain, [(0, b"a"), (3, b"b")])
        with pytest.raises(Unavailable):
            await chain.send(change, payload)
        assert CHUNK in chain[1].target.damaged and chain[2].pending() == 0
        chain[1].disk.bad = set()
        await until(lambda: CHUNK not in chain[1].target.damaged)
        assert (await chain.send(change, payload)).version == 2
        assert await chain.read(2) == (2, over(b"x" * 20_000, [(0, b"a"), (3, b"b")]))


async def test_a_few_bytes_for_many_chunks_take_no_more_memory_than_is_lent_at_a_time(tmp_path: Path) -> None:
    """What lies between the pieces is no payload, which the server would count."""
    async with chain_of(tmp_path, 2) as chain:
        whole = Scratch(chain[1].server.pool, 3 * CHUNK_BYTES)
        chain[1].target.engine.joined = ScratchShare(whole, 2 * CHUNK_BYTES)
        gate = chain[1].disk.hold_sync = Gate()
        pieces = [(0, b"a"), (CHUNK_BYTES - 1, b"b")]
        rows = [row(chain, pieces, chunk=ChunkId(7, number)) for number in range(1, 25)]
        message = pb.WriteRequest(writes=[change for change, _ in rows])
        payload = [b"".join(part for _, part in rows)]
        call = asyncio.create_task(chain.peers.call(chain[1].address, WRITE, message, timeout_s=20, payload=payload))
        await gate.reached.wait()
        await asyncio.sleep(0.05)
        lent = chain[1].server.pool.lent_bytes
        chain[1].disk.hold_sync = None
        gate.open.set()
        assert lent <= 4 * CHUNK_BYTES
        assert [result.code for result in (await call).results] == [0] * len(rows)
        expected = over(b"", pieces)
        assert {await chain.read(2, ChunkId(7, number)) for number in range(1, 25)} == {(1, expected)}


async def test_a_change_waits_for_memory_no_longer_than_its_call(tmp_path: Path) -> None:
    """It holds the lock of its chunk meanwhile, so others would wait behind a call that nobody waits for."""
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"." * 100)
        held = chain[1].target.engine.joined
        buffer = await held.take(JOINED_BYTES)  # more than its share: it has it alone
        change, payload = row(chain, [(0, b"a"), (50, b"b")])
        with pytest.raises(DeadlineExceeded, match="memory"):
            await chain[1].storage._craq.write(chain[1].target, change, memoryview(payload), CLOCK.monotonic() + 0.05)
        held.give(buffer)
        assert not len(chain[1].target.locks)
        assert (await chain.send(change, payload)).version == 2
