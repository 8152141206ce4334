"""The write path of a storage process that makes spans: the same parts, with a span around each step.

A write arrives with the context of the span that has sent it, and leaves with that of the call to the next target. So
the spans of all targets of the chain lie in one trace, each below the one before.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any

from threefs.env.clock import Clock
from threefs.env.net import Buffer
from threefs.ids import ChunkId, TargetId
from threefs.rpc.methods import WRITE, Method, Rep, Req
from threefs.telemetry.event_trace import EventTrace
from threefs.telemetry.tracing import Attributes, Tracing
from threefs.wire import storage_pb2 as pb
from threefs_storage.chain.craq import Craq, WriteResult
from threefs_storage.chain.early_staging import EarlyStaging
from threefs_storage.chain.shared_messages import SharedMessages
from threefs_storage.engine.chunk_record import Version
from threefs_storage.engine.content_plan import Update
from threefs_storage.peer_targets import PeerTargets
from threefs_storage.target import Target


class TracedEvents(EventTrace):
    """Events of a chunk are events of the present span, too."""

    def __init__(self, *, clock: Clock, tracing: Tracing) -> None:
        super().__init__(clock=clock)
        self._tracing = tracing

    def add(self, key: Hashable, what: str, **facts: Any) -> None:
        super().add(key, what, **facts)
        self._tracing.event(what, {f"threefs.{name}": value for name, value in facts.items()})


class TracedPeerTargets(PeerTargets):
    """A forward to the next target is a span, whose context goes with it."""

    def __init__(self, *args: Any, tracing: Tracing, **options: Any) -> None:
        """The others are the arguments of `PeerTargets`."""
        super().__init__(*args, **options)
        self._tracing = tracing

    async def call(self, target: TargetId, method: Method[Req, Rep], request: Req, **options: Any) -> Rep:
        if method is not WRITE:
            return await super().call(target, method, request, **options)
        with self._tracing.inner("forward", {"threefs.to_target": target}, is_call=True):
            assert isinstance(request, pb.WriteRequest), "the request of a write"
            for write in request.writes:
                write.trace = self._tracing.context()
            return await super().call(target, method, request, **options)


class TracedSharedMessages(SharedMessages):
    """A forward is a span also where it shares a message."""

    def __init__(self, *args: Any, tracing: Tracing, **options: Any) -> None:
        """The others are the arguments of `SharedMessages`."""
        super().__init__(*args, **options)
        self._tracing = tracing

    async def forward(
        self, target: TargetId, version: pb.ForwardStagedRequest, timeout_s: float, hops: int
    ) -> pb.ChunkWriteResult:
        with self._tracing.inner("forward", {"threefs.to_target": target}, is_call=True):
            version.trace = self._tracing.context()
            return await super().forward(target, version, timeout_s, hops)


class TracedCraq(Craq):
    """The work for a write that arrives is a span, and so is the time until it is durable here."""

    def __init__(self, *args: Any, tracing: Tracing, **options: Any) -> None:
        """The others are the arguments of `Craq`."""
        super().__init__(*args, **options)
        self._tracing = tracing

    async def write(self, target: Target, write: pb.ChunkWrite, payload: Buffer, deadline: float) -> WriteResult:
        attributes = _attributes(target, write)
        with self._tracing.continued("write", write.trace, attributes, may_begin=not write.version):
            write.trace = self._tracing.context()  # for what is sent ahead
            done = await super().write(target, write, payload, deadline)
            self._tracing.note({"threefs.version": done.version})
            return done

    async def persist(self, target: Target, chunk: ChunkId, update: Update, payload: Buffer) -> Version:
        with self._tracing.inner("persist", {"threefs.version": update.version}):
            return await super().persist(target, chunk, update, payload)


class TracedEarlyStaging(EarlyStaging):
    """A change that comes ahead, and the forward that names it, are a span each."""

    def __init__(self, *args: Any, tracing: Tracing, **options: Any) -> None:
        """The others are the arguments of `EarlyStaging`."""
        super().__init__(*args, **options)
        self._tracing = tracing

    async def stage(self, target: Target, write: pb.ChunkWrite, payload: Buffer, deadline: float) -> None:
        attributes = {**_attributes(target, write), "threefs.version": write.version}
        with self._tracing.continued("stage ahead", write.trace, attributes):
            write.trace = self._tracing.context()  # for the target behind this one
            await super().stage(target, write, payload, deadline)

    async def take_forward(self, target: Target, request: pb.ForwardStagedRequest, deadline: float) -> WriteResult:
        attributes = {**_attributes(target, request), "threefs.version": request.version}
        with self._tracing.continued("write", request.trace, attributes):
            return await super().take_forward(target, request, deadline)


@dataclass(frozen=True, slots=True)
class Parts:
    """The constructors of the parts of the write path."""

    events: Callable[..., EventTrace] = EventTrace
    peer_targets: Callable[..., PeerTargets] = PeerTargets
    shared_messages: Callable[..., SharedMessages] = SharedMessages
    craq: Callable[..., Craq] = Craq
    early_staging: Callable[..., EarlyStaging] = EarlyStaging


def parts_of(tracing: Tracing | None) -> Parts:
    """Those that make spans, or those that know nothing of spans."""
    if tracing is None:
        return Parts()
    return Parts(
        partial(TracedEvents, tracing=tracing),
        partial(TracedPeerTargets, tracing=tracing),
        partial(TracedSharedMessages, tracing=tracing),
        partial(TracedCraq, tracing=tracing),
        partial(TracedEarlyStaging, tracing=tracing),
    )


def _attributes(target: Target, message: pb.ChunkWrite | pb.ForwardStagedRequest) -> Attributes:
    return {
        "threefs.chain": target.chain.chain_id,
        "threefs.chain_version": target.chain.version,
        "threefs.target": target.target_id,
        "threefs.inode": str(message.chunk.inode),
        "threefs.chunk": message.chunk.index,
        "threefs.bytes": message.length,
    }
