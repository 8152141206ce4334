"""A primary keeps the routing in memory, and reads only its version from the store. So with each change, before it is
made, the routing of that version as managers know it is compared with the one that is stored."""

from collections.abc import Mapping
from typing import TypeVar

from google.protobuf.message import Message

from tests.sim.world import World
from threefs import routing as routing_module
from threefs.cluster.manager_records import CHAIN, CLUSTER_KEY, NODE, TABLE, TARGET
from threefs.kv import records
from threefs.kv.transaction import BufferedTransaction
from threefs.routing import Routing
from threefs.wire import manager_pb2 as pb

M = TypeVar("M", bound=Message)


def watch(world: World, violations: list[str]) -> None:
    """Add what is wrong to `violations`."""
    kv = world.manager_kv
    apply = kv._apply

    def checked(attempt: BufferedTransaction) -> None:
        if CLUSTER_KEY in attempt.writes:
            violations.extend(_wrong(world, kv.pairs()))
        apply(attempt)

    kv._apply = checked  # type: ignore[method-assign]


def _wrong(world: World, pairs: Mapping[bytes, bytes]) -> list[str]:
    stored = _routing(pairs)
    known = {host: manager._store._known for host, manager in world.managers.items() if manager._store is not None}
    return [
        f"{host} knows another routing of version {stored.version} than is stored: {routing}, and stored is {stored}"
        for host, routing in known.items()
        if routing is not None and routing.version == stored.version and routing != stored
    ]


def _routing(pairs: Mapping[bytes, bytes]) -> Routing:
    def decoded(prefix: bytes, kind: type[M]) -> list[M]:
        return [records.decode(pairs[key], kind, key) for key in sorted(pairs) if key.startswith(prefix + b"|")]

    found = pairs.get(CLUSTER_KEY)
    cluster = pb.ClusterRecord() if found is None else records.decode(found, pb.ClusterRecord, CLUSTER_KEY)
    message = pb.Routing(
        version=cluster.routing_version,
        cluster_id=cluster.cluster_id,
        nodes=decoded(NODE, pb.Node),
        targets=decoded(TARGET, pb.Target),
        chains=decoded(CHAIN, pb.Chain),
        tables=decoded(TABLE, pb.ChainTable),
        lease_ms=cluster.lease_ms,
        default_table=cluster.default_table,
    )
    return routing_module.from_wire(message)
