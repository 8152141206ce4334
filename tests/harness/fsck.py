"""`threefs fsck` over a meta service in the test's own memory. Metadata tests end with it."""

from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

from threefs_fsck.chunks import ChunkCheck
from threefs_fsck.findings import Report
from threefs_fsck.metadata import MetadataCheck
from threefs_fsck.removed_files import RemovedFileCheck
from threefs_meta.context import Context
from threefs_meta.service import bind

from tests.harness.memory_storage import MemoryStorage
from threefs.cluster.chunk_client import ChunkClient
from threefs.env.clock import Clock
from threefs.rpc.methods import Method, Rep, Req
from threefs.rpc.preencoded import PreencodedReply
from threefs.wire import meta_pb2 as pb

_CLIENT = b"fsck" * 4
_REQUESTS = count(1)


class LocalMeta:
    """Calls of the meta service that reach its operations directly."""

    def __init__(self, context: Context) -> None:
        self._handlers: dict[int, Callable[[Any], Awaitable[Any]]] = {}
        #: Called before each request: here a test changes what is being checked.
        self.before: Callable[[Any], Awaitable[None]] | None = None
        bind(self, context)

    def serve(self, method: Method[Any, Any], handler: Callable[[Any], Awaitable[Any]], *, quick: bool = False) -> None:
        self._handlers[method.number] = handler

    def mutation(self) -> pb.Mutation:
        return pb.Mutation(client=_CLIENT, request=next(_REQUESTS))

    async def call(self, method: Method[Req, Rep], request: Req, *, timeout_s: float) -> Rep:
        if self.before is not None:
            await self.before(request)
        reply: Rep | PreencodedReply[Rep] = await self._handlers[method.number](request)
        return reply.parsed() if isinstance(reply, PreencodedReply) else reply


async def check_metadata(meta: LocalMeta, *, repair: bool = False) -> Report:
    report = Report()
    await MetadataCheck(meta, report, repair=repair, progress=lambda title, rows: None).run()
    return report


async def check_clean(context: Context) -> None:
    """To be called when a test is over: nothing is wrong."""
    report = await check_metadata(LocalMeta(context))
    assert not report.findings and report.complete, "\n".join(finding.detail for finding in report.findings)


async def check_chunks(
    meta: LocalMeta, storage: MemoryStorage, chunks: ChunkClient, clock: Clock, *, repair: bool = False
) -> Report:
    report = Report()
    await ChunkCheck(
        meta,
        storage,
        storage.cluster,
        chunks,
        report,
        clock=clock,
        repair=repair,
        progress=lambda title, rows: None,
    ).run()
    return report


async def check_removed_files(
    meta: LocalMeta, storage: MemoryStorage, chunks: ChunkClient, *, restored_ns: int
) -> Report:
    report = Report()
    check = RemovedFileCheck(meta, storage, storage.cluster, chunks, report, progress=lambda title, rows: None)
    await check.run(restored_ns)
    return report
