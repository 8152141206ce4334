"""The connection of a process to a cluster: all parts that belong to one event loop and one client identity."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from threefs.background import BackgroundTasks
from threefs.cluster.chunk_client import ChunkClient, ChunkLimits
from threefs.cluster.routing_watcher import RoutingWatcher
from threefs.cluster.traced_chunk_client import TracedChunkClient
from threefs.env import host_slots
from threefs.env.clock import CLOCK, Clock
from threefs.env.host_slots import OwnSlots
from threefs.env.net import Net, RealNet
from threefs.env.random import RANDOM, Random
from threefs.errors import NotAuthorised, ThreefsError
from threefs.ids import ClientId
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.handshake import Identity
from threefs.rpc.methods import CLOSE, PRECREATE, RENEW_LEASE, REPORT_ATIME
from threefs.telemetry.library_logging import LibraryLogger
from threefs.telemetry.tracing import TRACE_VARIABLE, tracing_to
from threefs.wire import meta_pb2 as pb
from threefs_client import credentials
from threefs_client.cluster_values import ClusterValues, process_name
from threefs_client.data.grants import Grants
from threefs_client.data.read_ahead import ReadAheadBudget
from threefs_client.data.reads import Reader
from threefs_client.data.write_budget import WriteBudget
from threefs_client.metadata.atime_reporter import AtimeReporter
from threefs_client.metadata.call_retry import MetaClient
from threefs_client.metadata.lease import Lease
from threefs_client.metadata.precreated import PrecreatedFiles
from threefs_client.metadata.session_closer import SessionCloser
from threefs_client.options import Options

_GIVE_BACK_TIMEOUT_S = 2.0
_LOG = LibraryLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClientContext:
    options: Options
    client: ClientId
    caller: pb.Caller  # the user of this process, when it connected
    peers: ConnectionPool
    cluster: RoutingWatcher
    chunks: ChunkClient
    reader: Reader
    grants: Grants | None  # None: request-to-send is off
    meta: MetaClient
    lease: Lease
    session_closer: SessionCloser
    precreated: PrecreatedFiles
    atime_reporter: AtimeReporter
    write_budget: WriteBudget
    read_ahead_budget: ReadAheadBudget
    cluster_values: ClusterValues
    background: BackgroundTasks  # what goes on after the call that has begun it
    clock: Clock
    random: Random

    def deadline(self, timeout_s: float | None = None) -> float:
        return self.clock.monotonic() + (self.options.timeout_s if timeout_s is None else timeout_s)

    async def close(self) -> None:
        await self.atime_reporter.close()
        await self.precreated.close()
        await self.background.stop()
        await self.session_closer.close()
        await self.lease.close()
        await self.meta.close()
        await self.cluster.close()
        await self.peers.close()
        if self.grants is not None:
            self.grants.close()


async def connect(
    addresses: tuple[str, ...],
    options: Options,
    *,
    net: Net | None = None,
    clock: Clock = CLOCK,
    random: Random = RANDOM,
    slots: OwnSlots | None = None,
    name: str = "",
) -> ClientContext:
    """Fetch the routing from a manager. Raises Unavailable, which names the addresses and what to start, and
    NotAuthorised, which says where a key is looked for.

    `slots` are those of this host, if they are not the real ones. Administrators know this process by its `name`."""
    make_chunks = chunks_of(options)
    client = ClientId(random.token(16))
    cluster_values = ClusterValues(options, client, name or process_name())
    key, key_from = options.key(addresses)
    identity = Identity(cluster_id="", client_id=client.hex(), token=key, program="python")
    net = net or RealNet(unix_sockets=options.unix_sockets)
    peers = ConnectionPool(net, identity, clock=clock, dscp=options.dscp)
    cluster = RoutingWatcher(peers, addresses, clock=clock, random=random)
    try:
        await cluster.start(options.connect_timeout_s)
    except (ThreefsError, asyncio.CancelledError) as error:
        await cluster.close()
        await peers.close()
        if isinstance(error, NotAuthorised) and key:
            raise NotAuthorised(f"{error.message}; its key is from {key_from}") from None
        raise
    limits = ChunkLimits(
        request_bytes=options.request_bytes,
        in_flight_bytes=options.in_flight_bytes,
        attempt_timeout_s=options.attempt_timeout_s,
    )
    caller = credentials.process_caller()
    meta = MetaClient(
        peers, cluster, client, caller, attempt_timeout_s=options.attempt_timeout_s, clock=clock, random=random
    )
    lease = lease_of(client, meta, cluster, options.timeout_s, clock)
    session_closer = session_closer_of(meta, lease, clock)
    grants = grants_of(options, slots, clock, random)
    write_budget, read_ahead_budget = (
        WriteBudget(options.max_dirty_bytes),
        ReadAheadBudget(options.max_read_ahead_bytes),
    )
    cluster_values.follow("max_dirty_bytes", write_budget.set_limit)
    cluster_values.follow("max_read_ahead_bytes", read_ahead_budget.set_limit)
    cluster_values.start(cluster)
    return ClientContext(
        options=options,
        client=client,
        caller=caller,
        peers=peers,
        cluster=cluster,
        chunks=make_chunks(peers, cluster, client, clock=clock, random=random, limits=limits),
        reader=Reader(peers, cluster, options, clock=clock, random=random, grants=grants),
        grants=grants,
        meta=meta,
        lease=lease,
        session_closer=session_closer,
        precreated=precreated_of(meta, lease, session_closer, options, clock=clock, random=random),
        atime_reporter=atime_reporter_of(meta, options, clock),
        write_budget=write_budget,
        read_ahead_budget=read_ahead_budget,
        cluster_values=cluster_values,
        background=BackgroundTasks(),
        clock=clock,
        random=random,
    )


def chunks_of(options: Options) -> Callable[..., ChunkClient]:
    """The factory of the client of chunks: one that makes spans, if writes are to be traced. Raises InvalidArgument."""
    endpoint = options.trace_endpoint or os.environ.get(TRACE_VARIABLE, "")
    if not endpoint:
        return ChunkClient
    logging.getLogger("opentelemetry").addHandler(logging.NullHandler())  # no lines on the terminal of a program
    tracing = tracing_to(endpoint, options.trace_sample, "threefs-client", f"process-{os.getpid()}")
    return partial(TracedChunkClient, tracing=tracing)


def grants_of(options: Options, slots: OwnSlots | None, clock: Clock, random: Random) -> Grants | None:
    most = options.receive_senders
    if not most:
        return None
    return Grants(
        slots or host_slots.of_host(most, _warn_of_own_slots),
        most,
        max(1, options.receive_bytes // most),
        clock,
        random,
    )


def _warn_of_own_slots(error: OSError) -> None:
    _LOG.warning(
        "this process shares no budget for received data with the other programs of its user on this host, so it has "
        "one of its own: remove what is in the way, or let $XDG_RUNTIME_DIR name a directory of this user",
        error=str(error),
    )


def lease_of(client: ClientId, meta: MetaClient, cluster: RoutingWatcher, timeout_s: float, clock: Clock) -> Lease:
    def renew(request: pb.RenewLeaseRequest, timeout_s: float) -> Awaitable[pb.RenewLeaseReply]:
        return meta.call(RENEW_LEASE, request, timeout_s=timeout_s)

    return Lease(client, renew, lambda: cluster.routing.lease_s, timeout_s=timeout_s, clock=clock)


def session_closer_of(meta: MetaClient, lease: Lease, clock: Clock) -> SessionCloser:
    def send(request: pb.CloseRequest, caller: pb.Caller | None, timeout_s: float) -> Awaitable[pb.InodeReply]:
        request.mutation.CopyFrom(meta.mutation())
        return meta.call(CLOSE, request, timeout_s=timeout_s, caller=caller)

    return SessionCloser(send, lease, clock=clock)


def precreated_of(
    meta: MetaClient, lease: Lease, session_closer: SessionCloser, options: Options, *, clock: Clock, random: Random
) -> PrecreatedFiles:
    def precreate(request: pb.PrecreateRequest, caller: pb.Caller | None) -> Awaitable[pb.PrecreateReply]:
        request.mutation.CopyFrom(meta.mutation())
        return meta.call(PRECREATE, request, timeout_s=options.timeout_s, caller=caller)

    def close_all(requests: Sequence[pb.CloseRequest]) -> Awaitable[Sequence[Any]]:
        return meta.send_changes([(CLOSE, request) for request in requests], timeout_s=_GIVE_BACK_TIMEOUT_S)

    return PrecreatedFiles(precreate, close_all, lease, session_closer, clock=clock, random=random)


def atime_reporter_of(meta: MetaClient, options: Options, clock: Clock) -> AtimeReporter:
    def send(request: pb.ReportAtimeRequest, timeout_s: float) -> Awaitable[pb.ReportAtimeReply]:
        return meta.call(REPORT_ATIME, request, timeout_s=timeout_s)

    return AtimeReporter(send, enabled=not options.noatime, clock=clock)
