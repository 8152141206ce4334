"""What the primary does first with a store that was loaded from a backup.

Nodes may know newer versions of the routing and of chains than the backup has. Versions only rise (I5), so all are
raised beyond those that anybody can know: to numbers made from the clock, which are far above what counting reaches.
The routing at once, as nobody takes an older one; the chains when all that is known of them has been told
(`inquiry.py`). Then whoever served a chain last returns to it as if all had died: it has what was acknowledged.
"""

import dataclasses
from collections.abc import Mapping

from threefs import routing as routing_module
from threefs.ids import ChainId
from threefs.routing import Chain, ChainMember, PublicState
from threefs.wire import manager_pb2 as pb
from threefs_manager.cluster_store import Writer

_EPOCH_S = 1_735_689_600  # 2025-01-01
_CHANGES_PER_MINUTE = 8  # bits: more changes of one chain, on average of years, than it can have
_CHANGES_PER_S = 32  # bits, of the routing


def wrong_store_message(expected_cluster_id: str, actual: str) -> str:
    """What is wrong with a store that is not that of the cluster it should be of, and what to do."""
    state = f"belongs to cluster {actual}" if actual else "is empty"
    return (
        f"the manager's store {state}, but its data directory and nodes belong to cluster {expected_cluster_id}: mount "
        "the right disk, or restore the newest backup with `threefs restore BACKUP` (docs/backup.md)"
    )


async def raise_routing_version(writer: Writer, wall_ns: int) -> bool:
    """Raise the version of the routing of a restored store. False: it is none, or it is settled."""
    if not await writer.is_restored():
        return False
    writer.cluster.routing_version = raised_routing_version(writer.cluster.routing_version, wall_ns)
    writer.put_chains([], [], {})
    return True


async def adopt_chains(writer: Writer, newest: Mapping[ChainId, pb.KeptChain], wall_ns: int) -> None:
    """Go on with the newest that is known of each chain, here or by what storage nodes have told."""
    if not await writer.is_restored():
        return  # it is done, by an attempt whose outcome was not known
    writer.clear_restore_mark()
    for chain in await writer.chains():
        kept = newest.get(chain.chain_id)
        if kept is not None and kept.chain.version > chain.version:
            chain = routing_module.chain_from_wire(kept.chain)
            for target in kept.targets:
                writer.put_target(target)
        writer.put_chains([with_raised_version(without_serving(chain), wall_ns)], [], {})


def without_serving(chain: Chain) -> Chain:
    """As if all members had died at once: each that served has everything that was acknowledged, and none of the others
    need have it."""
    served = PublicState.SERVING if chain.serving else PublicState.LASTSRV
    last = tuple(ChainMember(m.target_id, PublicState.LASTSRV) for m in chain.members if m.state is served)
    rest = tuple(ChainMember(m.target_id, PublicState.OFFLINE) for m in chain.members if m.state is not served)
    return dataclasses.replace(chain, members=last + rest)


def raised_routing_version(version: int, wall_ns: int) -> int:
    return max(version, (wall_ns // 10**9) << _CHANGES_PER_S)


def with_raised_version(chain: Chain, wall_ns: int) -> Chain:
    minutes = max(0, wall_ns // 10**9 - _EPOCH_S) // 60
    return dataclasses.replace(chain, version=max(chain.version + 1, minutes << _CHANGES_PER_MINUTE))
