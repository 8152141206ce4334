from threefs_storage.chain.changes import outcome_unknown
from threefs_storage.engine.chunk_record import Version

from threefs.errors import DeadlineExceeded, NoSpace, OutcomeUnknown
from threefs.ids import ChunkId, TargetId
from threefs.routing import ChainMember, PublicState

CHUNK = ChunkId(7, 0)
VERSION = Version(5, 1, 3, 0xABC, None, 4096, bytes(4))
SUCCESSOR = ChainMember(TargetId(201), PublicState.SERVING)


def test_an_error_after_the_change_promises_nothing() -> None:
    late = DeadlineExceeded("late")
    assert outcome_unknown(late) is late
    assert isinstance(outcome_unknown(NoSpace("full")), OutcomeUnknown)
