"""What the primary does first with a store that was loaded from a backup.

Nodes may know newer versions of the routing and of chains than the backup has. Versions only rise (I5), so all are
raised beyond those that anybody can know: to numbers made from the clock, which are far above what counting reaches.
"""

import dataclasses

from threefs.errors import StrangeStore
from threefs.routing import Chain
from threefs.wire import manager_pb2 as pb
from threefs_manager.store import Writer

_EPOCH_S = 1_735_689_600  # 2025-01-01
_CHANGES_PER_MINUTE = 8  # bits: more changes of one chain, on average of years, than it can have
_CHANGES_PER_S = 32  # bits, of the routing


def lost(belongs_to: str, found: str) -> str:
    """What is wrong with a store that is not that of the cluster it should be of, and what to do."""
    return (
        f"the manager's store {f'is that of cluster {found}' if found else 'is empty'}, but its data and nodes are of "
        f"cluster {belongs_to}: mount its disk, or restore the newest backup: `threefs restore BACKUP` (docs/backup.md)"
    )


def check_not_older(known: int, request: pb.RegisterRequest | pb.HeartbeatRequest) -> None:
    """`known` is the version of the routing here. Raises StrangeStore if the node was told of a newer one."""
    if request.routing_version > known:
        raise StrangeStore(
            f"the manager's store is an older copy: node {request.node_id} has seen version {request.routing_version} "
            f"of the routing, and the store has {known}. Put the newest one in its place, or restore a backup: "
            "`threefs restore BACKUP` (docs/backup.md)"
        )


async def settle(writer: Writer, wall_ns: int) -> bool:
    """Raise the versions of a restored store. False: it is none."""
    if not await writer.take_restore_mark():
        return False
    writer.cluster.routing_version = raised_routing(writer.cluster.routing_version, wall_ns)
    chains = [raised(chain, wall_ns) for chain in await writer.chains()]
    writer.put_chains(chains, [], {})
    return True


def raised_routing(version: int, wall_ns: int) -> int:
    return max(version, (wall_ns // 10**9) << _CHANGES_PER_S)


def raised(chain: Chain, wall_ns: int) -> Chain:
    minutes = max(0, wall_ns // 10**9 - _EPOCH_S) // 60
    return dataclasses.replace(chain, version=max(chain.version + 1, minutes << _CHANGES_PER_MINUTE))
