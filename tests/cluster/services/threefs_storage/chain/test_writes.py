"""Messages with several changes, at the service that takes them."""

import asyncio
import errno
import os
from pathlib import Path

import pytest
from threefs_storage.engine.overlay import OverlayLimits

from tests.harness.chain_harness import OFFLINE, SERVING, TestChain, chain_of, target_of, until
from threefs.checksums import crc32c
from threefs.errors import (
    ChecksumMismatch,
    InvalidArgument,
    LimitExceeded,
    NoSpace,
    NotServing,
    NotStaged,
    ThreefsError,
    Unavailable,
)
from threefs.ids import ChunkId
from threefs.rpc.methods import FORWARD_VERSIONS, STAGE_AHEAD
from threefs.wire import storage_pb2 as pb

CHUNKS = [ChunkId(7, number) for number in range(3)]
NO_DESCRIPTORS = Unavailable(f"/s/target-101/blocks/64KiB.blocks: {os.strerror(errno.EMFILE)}")


async def test_each_change_of_a_message_has_its_own_result(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2, overlay=OverlayLimits()) as chain:
        for chunk in CHUNKS:
            await chain.write(b"old content", chunk=chunk)
        rows = [chain.ahead_row(2, b"new", 2, chunk=chunk) for chunk in CHUNKS]
        rows[1].checksum ^= 1
        request = pb.StageAheadRequest(writes=rows)
        reply = await chain.peers.call(chain[2].address, STAGE_AHEAD, request, timeout_s=20, payload=[b"new" * 3])
        assert [result.code for result in reply.results] == [0, ChecksumMismatch.code, 0]
        assert [chain[2].pending(chunk) for chunk in CHUNKS] == [2, 0, 2]
        names = [
            pb.ForwardStagedRequest(
                target=target_of(2 if number < 3 else 7),
                chain_version=chain.version,
                chunk=row.chunk,
                identity=row.identity,
                version=2,
                length=len(b"old content"),
                checksum=_pending_checksum(chain, CHUNKS[number % 3]),
                stamp=row.stamp,
            )
            for number, row in enumerate([*rows, rows[0]])
        ]
        forwards = pb.ForwardVersionsRequest(versions=names)
        found = await chain.peers.call(chain[2].address, FORWARD_VERSIONS, forwards, timeout_s=20)
        assert [result.code for result in found.results] == [0, NotStaged.code, 0, NotServing.code]
        assert [chain[2].committed(chunk) for chunk in CHUNKS] == [2, 1, 2]


async def test_a_forward_right_behind_its_payload_finds_it(tmp_path: Path) -> None:
    """Both come in one piece. The rows of a message begin in tasks, also where it has only one: else that one would
    begin before those of the message ahead of it."""
    async with chain_of(tmp_path, 2, overlay=OverlayLimits()) as chain:
        for chunk in CHUNKS:
            await chain.write(b"old", chunk=chunk)
        rows = [chain.ahead_row(2, b"new", 2, chunk=chunk) for chunk in CHUNKS]
        last = rows[-1]
        name = pb.ForwardStagedRequest(
            target=last.target,
            chain_version=chain.version,
            chunk=last.chunk,
            identity=last.identity,
            version=2,
            length=3,
            checksum=crc32c(b"new"),
            stamp=last.stamp,
        )
        connection = await chain.peers.connect(chain[2].address, 20)
        ahead = connection.call(STAGE_AHEAD, pb.StageAheadRequest(writes=rows), timeout_s=20, payload=[b"new" * 3])
        forward = connection.call(FORWARD_VERSIONS, pb.ForwardVersionsRequest(versions=[name]), timeout_s=20)
        assert [result.code for result in (await forward).results] == [0]
        assert [result.code for result in (await ahead).results] == [0] * 3


async def test_a_forward_of_a_newer_chain_version_waits_for_the_routing(tmp_path: Path) -> None:
    """The predecessor has heard of it first. A refusal would cost a pause."""
    async with chain_of(tmp_path, 2) as chain:
        chain[2].cluster.upcoming = chain.change((1, SERVING), (2, SERVING), learned_by=[1])
        row = chain.ahead_row(2, b"new", 2)
        name = pb.ForwardStagedRequest(target=row.target, chain_version=chain.version, chunk=row.chunk, version=2)
        versions = pb.ForwardVersionsRequest(versions=[name, name])
        reply = await chain.peers.call(chain[2].address, FORWARD_VERSIONS, versions, timeout_s=20)
        assert [result.code for result in reply.results] == [NotStaged.code] * 2, "not ChainChanged"


@pytest.mark.parametrize("error", [NoSpace("the disk is full"), NO_DESCRIPTORS])
async def test_a_target_without_room_for_what_comes_ahead_leaves_at_once(tmp_path: Path, error: ThreefsError) -> None:
    async with chain_of(tmp_path, 2) as chain:

        async def full(*_: object, **more: object) -> None:
            raise error

        chain[2].target.engine.stage = full  # type: ignore[method-assign, assignment]
        rows = [chain.ahead_row(2, b"x", 1, chunk=chunk, fresh=True) for chunk in CHUNKS[:2]]
        request = pb.StageAheadRequest(writes=rows)
        reply = await chain.peers.call(chain[2].address, STAGE_AHEAD, request, timeout_s=20, payload=[b"xx"])
        assert [result.code for result in reply.results] == [error.code, NotServing.code]
        target, (report,) = chain[2].target, chain[2].targets.reports()
        assert target.leaving and report.read_only is target.full is (error is not NO_DESCRIPTORS)
        assert target.full or report.failure == "the process has no descriptors or no memory left"


async def test_a_client_is_told_that_a_process_has_no_descriptors_and_no_name_of_its_files(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 1) as chain:

        async def exhausted(*_: object, **more: object) -> None:
            raise NO_DESCRIPTORS

        stage, chain[1].target.engine.stage = chain[1].target.engine.stage, exhausted  # type: ignore[method-assign, assignment]
        with pytest.raises(Unavailable, match="no descriptors or no memory") as refused:
            await chain.write(b"x")
        assert "/s/" not in str(refused.value)
        chain[1].target.engine.stage = stage  # type: ignore[method-assign]
        await chain.write(b"x")
        assert not chain[1].target.leaving, "nobody else serves"


async def test_a_target_without_room_for_a_forward_leaves_at_once_and_the_write_goes_on(tmp_path: Path) -> None:
    """Its predecessor heard that the write could not be repeated, and told the client that the outcome is unknown."""
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"old")  # opens a connection, so that the next change goes ahead

        def full(*_: object) -> None:
            raise NoSpace("the disk is full")

        chain[2].target.engine.commit = full  # type: ignore[method-assign, assignment]
        write = asyncio.create_task(chain.write(b"new"))
        await until(lambda: chain[2].target.leaving)
        assert chain[2].target.full
        chain.change((1, SERVING), (2, OFFLINE))
        assert (await write).version == 2


def _pending_checksum(chain: TestChain, chunk: ChunkId) -> int:
    pending = chain[2].record(chunk).pending
    return pending.checksum if pending is not None else 0


async def test_requests_that_are_too_large_are_refused(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 1) as chain:
        address = chain[1].address
        names = pb.ForwardVersionsRequest(versions=[pb.ForwardStagedRequest()] * 1025)
        with pytest.raises(LimitExceeded, match="1025 versions"):
            await chain.peers.call(address, FORWARD_VERSIONS, names, timeout_s=20)
        writes = pb.StageAheadRequest(writes=[chain.row(b"x")] * 2)
        with pytest.raises(InvalidArgument, match="2 bytes of payload, and 1 came"):
            await chain.peers.call(address, STAGE_AHEAD, writes, timeout_s=20, payload=[b"x"])
        many = pb.StageAheadRequest(writes=[pb.ChunkWrite()] * 1025)
        with pytest.raises(LimitExceeded, match="1025 writes"):
            await chain.peers.call(address, STAGE_AHEAD, many, timeout_s=20)
