import dataclasses

import pytest
from threefs_storage.chain.changes import check_agreement, check_follows, outcome_unknown
from threefs_storage.engine.records import Version

from threefs.errors import ChecksumMismatch, DeadlineExceeded, NoSpace, OutcomeUnknown, VersionGap
from threefs.ids import ChunkId, TargetId
from threefs.routing import ChainMember, PublicState
from threefs.wire import storage_pb2 as pb

CHUNK = ChunkId(7, 0)
VERSION = Version(5, 1, 3, 0xABC, None, 4096, bytes(4))
SUCCESSOR = ChainMember(TargetId(201), PublicState.SERVING)


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


def test_a_successor_has_the_same_or_a_newer_version() -> None:
    """I3, I4."""
    check_agreement(CHUNK, VERSION, SUCCESSOR, pb.ChunkWriteResult(version=5, length=3, checksum=0xABC))
    check_agreement(CHUNK, VERSION, SUCCESSOR, pb.ChunkWriteResult(version=6, length=9, checksum=1))
    for wrong in (
        pb.ChunkWriteResult(version=4, length=3, checksum=0xABC),
        pb.ChunkWriteResult(version=5, length=4, checksum=0xABC),
        pb.ChunkWriteResult(version=5, length=3, checksum=0xABD),
    ):
        with pytest.raises(ChecksumMismatch):
            check_agreement(CHUNK, VERSION, SUCCESSOR, wrong)


def test_an_error_after_the_change_promises_nothing() -> None:
    late = DeadlineExceeded("late")
    assert outcome_unknown(late) is late
    assert isinstance(outcome_unknown(NoSpace("full")), OutcomeUnknown)
