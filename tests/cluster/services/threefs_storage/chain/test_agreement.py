"""Neighbours that disagree on a chunk. Whole failovers are in tests/sim/golden/divergence.py."""

import dataclasses
from pathlib import Path

import pytest
from threefs_storage.chain.agreement import check_answer, check_follows, check_made
from threefs_storage.engine.chunk_record import Version

from tests.harness.chain_harness import CHUNK, OFFLINE, SERVING, SYNCING, chain_of, target_of
from threefs.errors import ChecksumMismatch, VersionGap
from threefs.ids import TargetId
from threefs.routing import ChainMember
from threefs.wire import storage_pb2 as pb

VERSION = Version(5, 1, 3, 0xABC, None, 4096, bytes(4))
_NEWER = pb.ChunkWriteResult(version=6, length=9, checksum=1)
_OTHERS = (
    pb.ChunkWriteResult(version=4, length=3, checksum=0xABC),
    pb.ChunkWriteResult(version=5, length=4, checksum=0xABC),
    pb.ChunkWriteResult(version=5, length=3, checksum=0xABD),
)


def test_a_version_follows_the_one_before_it() -> None:
    """R4: a change is defined only for the content that it was made for."""
    removed = dataclasses.replace(VERSION, removed=True)
    check_follows(CHUNK, VERSION, pb.ChunkWrite(version=6))
    check_follows(CHUNK, None, pb.ChunkWrite(version=1))
    check_follows(CHUNK, None, pb.ChunkWrite(version=99, fresh=True))
    check_follows(CHUNK, removed, pb.ChunkWrite(version=99, fresh=True))
    for committed, write in (
        (VERSION, pb.ChunkWrite(version=7)),
        (VERSION, pb.ChunkWrite(version=5)),
        (VERSION, pb.ChunkWrite(version=99, fresh=True)),
        (None, pb.ChunkWrite(version=2)),
        (removed, pb.ChunkWrite(version=7)),
    ):
        with pytest.raises(VersionGap):
            check_follows(CHUNK, committed, write)


@pytest.mark.parametrize("answer", [*_OTHERS, _NEWER], ids=["older", "longer", "other bytes", "newer"])
async def test_a_target_leaves_when_its_serving_successor_has_committed_something_else(
    tmp_path: Path, answer: pb.ChunkWriteResult
) -> None:
    """I3, I4."""
    async with chain_of(tmp_path, 2) as chain:
        head, successor = chain[1].target, ChainMember(TargetId(target_of(2)), SERVING)
        check_answer(head, CHUNK, VERSION, successor, pb.ChunkWriteResult(version=5, length=3, checksum=0xABC))
        assert not head.leaving
        with pytest.raises(ChecksumMismatch):
            check_answer(head, CHUNK, VERSION, successor, answer)
        assert head.leaving


async def test_no_target_leaves_because_of_a_syncing_successor(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        head, successor = chain[1].target, ChainMember(TargetId(target_of(2)), SYNCING)
        check_answer(head, CHUNK, VERSION, successor, _NEWER)
        for answer in _OTHERS:
            with pytest.raises(ChecksumMismatch):
                check_answer(head, CHUNK, VERSION, successor, answer)
        assert not head.leaving


async def test_a_change_makes_the_same_content_as_at_the_predecessor(tmp_path: Path) -> None:
    """I4."""
    async with chain_of(tmp_path, 2) as chain:
        check_made(chain[2].target, CHUNK, VERSION, 3, 0xABC)
        assert not chain[2].target.leaving
        for length, checksum in ((4, 0xABC), (3, 0xABD)):
            with pytest.raises(ChecksumMismatch):
                check_made(chain[2].target, CHUNK, VERSION, length, checksum)
        assert chain[2].target.leaving


@pytest.mark.parametrize("kind", [pb.WRITE, pb.REPLACE])
async def test_a_fresh_version_shows_which_of_two_targets_lacks_the_other_ones_version(
    tmp_path: Path, kind: int
) -> None:
    """I13: the predecessor names the removal that its version comes after."""
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"one")
        fresh = {"node": 2, "version": 99, "kind": kind, "fresh": True}
        answer = await chain.write(b"x", base_version=0, **fresh)
        assert (answer.version, answer.length) == (1, 3), "this target has what the predecessor has lost"
        assert not chain[2].target.leaving
        with pytest.raises(VersionGap):
            await chain.write(b"x", base_version=98, **fresh)
        assert chain[2].target.leaving, "it has missed the removal"


async def test_the_only_serving_target_stays_whatever_a_predecessor_says(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"one")
        chain.change((2, SERVING), (1, OFFLINE))
        with pytest.raises(VersionGap):
            await chain.write(b"x", node=2, version=3)
        assert not chain[2].target.leaving and await chain.read(2) == (1, b"one")
