"""Reads without one of the rules R1, R2 and I5: versions are asked of the wrong one, or served by one that may not."""

import math
from typing import Any

from threefs_storage import service as service_module
from threefs_storage.chain.reads import Reads
from threefs_storage.chain.version_query import VersionQuery
from threefs_storage.service import Storage
from threefs_storage.target import Target

from tests.sim.planted.registry import plant, plant_for, put
from threefs.errors import ThreefsError
from threefs.routing import Chain
from threefs.rpc.methods import QUERY_VERSION
from threefs.wire import storage_pb2 as pb


@plant
def last_serving_target_is_asked() -> None:
    """R1: which version is committed is asked of the last serving target, not of a syncing one behind it."""
    put(Chain, "last", property(lambda self: self.tail))


@plant
def any_replica_is_asked() -> None:
    """R1: who has a pending version asks its predecessor, or nobody."""

    async def wrong(self: VersionQuery, target: Target, chunk: Any, deadline: float) -> int:
        first = target.chain.serving[0]
        request = pb.QueryVersionRequest(
            target=first, chain_version=target.chain.version, inode=[chunk.inode], index=[chunk.number]
        )
        try:
            reply = await self._peers.call(first, QUERY_VERSION, request, timeout_s=1.0)
        except ThreefsError:
            return 0
        return reply.version[0]

    put(VersionQuery, "committed_version", wrong)


@plant_for(
    "cluster/services/threefs_storage/chain/test_reads.py::test_r1_what_a_syncing_target_has_of_another_history_says_nothing_of_a_pending_version"
)
def syncing_answers_of_another_history() -> None:
    """R1: a syncing target answers a version query with whatever it has committed."""

    def committed(target: Any, record: Any) -> int:
        return record.committed.version if record is not None and record.committed is not None else 0

    put(service_module, "_committed_for_query", committed)


@plant
def reads_ignore_the_lease() -> None:
    """R2: reads are answered without a lease; writes are not."""
    read = Reads.read

    def lax(self: Reads, call: Any) -> Any:
        until = [(target, target.leased_until) for target in self._targets]
        for target, _ in until:
            target.leased_until = math.inf
        try:
            return read(self, call)
        finally:
            for target, before in until:
                target.leased_until = before

    put(Reads, "read", lax)


@plant
def read_in_any_chain_version() -> None:
    """I5: a replica answers readers whose routing is another one."""
    read = Reads.read

    def lax(self: Reads, call: Any) -> Any:
        request = call.request
        for place, number in enumerate(request.target):
            target = self._targets.by_id.get(number)
            if target is not None:
                request.chain_version[place] = target.chain.version
                target.serving = target.state is not None
        return read(self, call)

    put(Reads, "read", lax)


@plant
def lists_without_what_is_pending() -> None:
    """A list of chunks leaves out what was pending before, though a replica may have shown it."""
    put(Storage, "_tail_without_pending", _at_once)


async def _at_once(self: Storage, target_id: int, chain_version: int, inode: int, remaining_s: Any) -> Target:
    return self._at_tail(target_id, chain_version)
