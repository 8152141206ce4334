from tests.harness.memory_storage import MemoryCluster, MemoryStorage
from tests.harness.trace_collector import TraceCollector
from tests.harness.virtual_time import LOOP_CLOCK, run_virtual
from threefs.cluster.chunk_client import ChunkClient
from threefs.cluster.chunk_update import ChunkUpdate
from threefs.cluster.traced_chunk_client import TracedChunkClient
from threefs.errors import ConnectionLost, NoSpace
from threefs.ids import ChainId, ChunkId, ClientId, InodeId
from threefs.telemetry.tracing import Tracing
from threefs.wire import storage_pb2 as pb

CLIENT = ClientId(b"c" * 16)
UPDATES = [
    ChunkUpdate(ChainId(1 + number % 2), ChunkId(InodeId(7), number), pb.WRITE, 1 << 16, length=4, payload=b"1234")
    for number in range(4)
]


def traces(storage: MemoryStorage) -> list[bytes]:
    requests = [request for _, _, request in storage.calls if isinstance(request, pb.WriteRequest)]
    return [write.trace for request in requests for write in request.writes]


def test_every_change_of_a_batch_and_each_attempt_has_the_context_of_the_batch() -> None:
    storage = MemoryStorage(cluster := MemoryCluster())
    storage.after = [lambda *_: ConnectionLost()]
    with TraceCollector() as collector:
        tracing = Tracing(collector.endpoint, 1.0, "p")
        chunks = TracedChunkClient(storage, cluster, CLIENT, clock=LOOP_CLOCK, tracing=tracing)
        outcomes = run_virtual(chunks.apply_each(UPDATES, timeout_s=5))
        tracing.close()
    [span] = collector.spans
    assert [getattr(outcome, "version", 0) for outcome in outcomes] == [1] * 4
    sent = traces(storage)
    assert len(sent) > 4, "one attempt was lost"
    assert {context[:24] for context in sent} == {span.trace + span.span}
    assert span.attributes == {"threefs.chain": "1,2", "threefs.changes": 4, "threefs.bytes": 16, "threefs.failed": 0}


def test_changes_that_fail_are_counted() -> None:
    storage = MemoryStorage(cluster := MemoryCluster())
    storage.before = [lambda *_: NoSpace()]
    with TraceCollector() as collector:
        tracing = Tracing(collector.endpoint, 1.0, "p")
        chunks = TracedChunkClient(storage, cluster, CLIENT, clock=LOOP_CLOCK, tracing=tracing)
        run_virtual(chunks.apply_each(UPDATES[:1], timeout_s=5))
        tracing.close()
    assert [span.attributes["threefs.failed"] for span in collector.spans] == [1]


def test_what_is_not_in_the_sample_and_what_is_not_traced_send_the_same_bytes() -> None:
    with TraceCollector() as collector:
        tracing = Tracing(collector.endpoint, 0.0, "p")
        sent = []
        for make in (ChunkClient, lambda *args, **options: TracedChunkClient(*args, **options, tracing=tracing)):
            storage = MemoryStorage(cluster := MemoryCluster())
            run_virtual(make(storage, cluster, CLIENT, clock=LOOP_CLOCK).apply_each(UPDATES, timeout_s=5))
            sent.append([request.SerializeToString() for _, _, request in storage.calls])
        tracing.close()
    assert sent[0] == sent[1]
