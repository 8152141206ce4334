"""A write of a real chain of three copies, as a collector of traces sees it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from threefs_client.context import connect
from threefs_client.options import Options

from tests.harness.cluster import LocalCluster
from tests.harness.trace_collector import Collected, TraceCollector
from threefs.cluster.chunk_client import Applied
from threefs.cluster.traced_chunk_client import TracedChunkClient
from threefs.ids import InodeId, TableId
from threefs.layout import FileLayout
from threefs.telemetry.tracing import Tracing

KIB = 1 << 10
NODES = ["node-1", "node-2", "node-3"]


@pytest.fixture(scope="module")
def collector() -> Iterator[TraceCollector]:
    with TraceCollector() as collector:
        yield collector


@pytest.fixture(scope="module")
def cluster(collector: TraceCollector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    settings = {"trace_endpoint": collector.endpoint}
    directory = tmp_path_factory.mktemp("cluster")
    with LocalCluster(directory, targets_per_disk=1, storage_settings=settings) as cluster:
        yield cluster


def above(span: Collected, spans: list[Collected]) -> list[Collected]:
    """The span and all those that it lies in, the innermost first."""
    by_number = {each.span: each for each in spans}
    found = [span]
    while found[-1].parent:
        found.append(by_number[found[-1].parent])
    return found


def commits(spans: list[Collected]) -> list[Collected]:
    return [span for span in spans if "committed" in span.events]


@pytest.mark.parametrize("size", [4 * KIB, 300 * KIB])
def test_a_write_is_one_trace_through_all_copies(cluster: LocalCluster, collector: TraceCollector, size: int) -> None:
    collector.spans.clear()
    with cluster.connect(trace_endpoint=collector.endpoint) as fs:
        fs.write_file(f"/{size}", b"x" * size)

    def is_whole(spans: list[Collected]) -> bool:
        roots = [span.trace for span in spans if span.name == "client write"]
        return any(len([span for span in commits(spans) if span.trace == trace]) == 3 for trace in roots)

    spans = collector.wait_until(is_whole)
    root = next(span for span in spans if span.name == "client write")
    spans = [span for span in spans if span.trace == root.trace]
    assert (root.program, root.parent, root.attributes["threefs.bytes"]) == ("threefs-client", b"", size)
    assert sorted(span.instance for span in commits(spans)) == NODES
    last = next(span for span in commits(spans) if "forwarding" not in span.events)
    way = above(last, spans)
    assert [span.name for span in way] == ["write", "forward", "write", "forward", "write", "client write"]
    assert sorted({span.instance for span in way} - {root.instance}) == NODES, "each node is below the one before it"
    writes = [span for span in way if span.name == "write"]
    for name in ("chain", "inode", "chunk", "version"):
        assert len({span.attributes[f"threefs.{name}"] for span in writes}) == 1, name
    assert len({span.attributes["threefs.target"] for span in writes}) == 3
    assert sorted(span.instance for span in spans if span.name == "persist") == NODES
    assert not any(span.failed for span in spans)


def test_writes_of_clients_that_trace_none_make_no_spans(cluster: LocalCluster, collector: TraceCollector) -> None:
    with cluster.connect() as fs:
        fs.write_file("/untraced", b"x" * KIB)
        inode = str(fs.stat("/untraced").inode)
    with cluster.connect(trace_endpoint=collector.endpoint) as fs:
        fs.write_file("/traced", b"x" * KIB)
        traced = str(fs.stat("/traced").inode)
    spans = collector.wait_until(
        lambda spans: sum(span.attributes.get("threefs.inode") == traced for span in commits(spans)) == 3
    )
    assert not [span for span in spans if span.attributes.get("threefs.inode") == inode]


class Garbled(Tracing):
    """Says no context that makes sense."""

    def context(self) -> bytes:
        return b"\xff" * 1000


def test_a_context_that_makes_no_sense_is_ignored(cluster: LocalCluster, collector: TraceCollector) -> None:
    garbled = Garbled(collector.endpoint, 0.0, "garbled")
    layout = FileLayout(64 * KIB, TableId(1), stripe=1)

    async def write() -> Applied:
        context = await connect((cluster.manager.address,), Options())
        try:
            chunks = TracedChunkClient(context.peers, context.cluster, context.client, tracing=garbled)
            return await chunks.write(layout, InodeId(1 << 40), 0, 0, b"x", timeout_s=30)
        finally:
            await context.close()

    assert asyncio.run(write()).length == 1
    garbled.close()
    with cluster.connect(trace_endpoint=collector.endpoint) as fs:
        fs.write_file("/after", b"x" * KIB)
        inode = str(fs.stat("/after").inode)
    spans = collector.wait_until(
        lambda spans: sum(span.attributes.get("threefs.inode") == inode for span in commits(spans)) == 3
    )
    assert not [span for span in spans if span.attributes.get("threefs.inode") == str(1 << 40)]


def test_a_head_can_begin_traces_by_itself(tmp_path: Path, collector: TraceCollector) -> None:
    settings = {"trace_endpoint": collector.endpoint, "trace_sample": 1.0}
    with LocalCluster(tmp_path, targets_per_disk=1, storage_settings=settings) as cluster, cluster.connect() as fs:
        collector.spans.clear()
        fs.write_file("/f", b"x" * KIB)
        inode = str(fs.stat("/f").inode)
        spans = collector.wait_until(
            lambda spans: sum(span.attributes.get("threefs.inode") == inode for span in commits(spans)) == 3
        )
    first = next(span for span in commits(spans) if span.attributes["threefs.inode"] == inode and not span.parent)
    assert len([span for span in commits(spans) if span.trace == first.trace]) == 3
