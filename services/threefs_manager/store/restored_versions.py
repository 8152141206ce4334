"""Restore: what a primary does first with a store that was loaded from a backup.

Nodes may know newer versions of the routing and of chains than the backup has, and versions only rise (I5). So the
primary raises all of them above what any node can know: to numbers made from the clock, far above what counting
reaches. It raises the routing at once, because nodes ignore an older one. It raises the chains after all nodes have
reported what they know of them (`restore_inquiry.py`). Then the targets that served a chain last return to it as if all
of them had died: they have what was acknowledged.

The backup may also lack restores of the metadata, and the epochs of inode numbers that were given for them. So the next
restored metadata store gets an epoch that is made from the clock as well, and counts in it from a number that is the
rest of the clock: two restores may come within one epoch. So no number of an inode is given out twice, even if the same
two backups are restored twice.

Chains may have got members since that the backup does not know, on nodes that it does not know either. They come with
what the nodes report, and no id is given out again: a second target of a number would take the place of the first one
in the routing, and the storage service would delete the chunks of the first one. Nor is the number of a target given
out again that has left the cluster since: its store may lie on a disk, and would pass for that of the new target. So
each node says the highest number that it was ever told of.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from threefs import routing as routing_module
from threefs.cluster.manager_records import FIRST_ADDED_TARGET, FIRST_META_NODE, LAST_BELIEVED_TARGET, SKIPPED_IDS
from threefs.env.clock import Clock
from threefs.ids import ChainId
from threefs.routing import Chain, ChainMember, Node, NodeKind, PublicState, Routing, Target
from threefs.wire import manager_pb2 as pb
from threefs_manager.store.cluster_store import Store, Writer, retry_forever

_BEGIN_S = 1_735_689_600  # 2025-01-01
_CHANGES_PER_MINUTE = 8  # bits: more changes than a chain can have in a minute, on the average of years
_CHANGES_PER_S = 32  # bits, of the routing
_EPOCH_S = 128  # from one epoch of inode numbers that is made from the clock to the next: they last until 2059
_NUMBER_BITS = 39  # that such an epoch counts as a clock: half of its numbers, so that as many are left after the last
_BATCH = 128  # chains that a transaction adopts: each with its members, and their nodes
_LAST_EPOCH = 1 << 23  # that is made from the clock, so that a clock that is wrong leaves half of the 24 bits


def wrong_store_message(expected_cluster_id: str, actual: str) -> str:
    """The error for a store of another cluster, or an empty one: what is wrong, and what to do."""
    state = f"belongs to cluster {actual}" if actual else "is empty"
    return (
        f"the manager's store {state}, but its data directory and nodes belong to cluster {expected_cluster_id}: mount "
        "the right disk, or restore the newest backup with `threefs restore BACKUP` (docs/backup.md)"
    )


async def raise_routing_version(writer: Writer, wall_ns: int) -> bool:
    """Raise the version of the routing, and the next epoch of the metadata, if the store was restored and its chains
    are not settled yet; returns whether that is so."""
    if not await writer.is_restored():
        return False
    writer.cluster.routing_version = raised_routing_version(writer.cluster.routing_version, wall_ns)
    metadata = await writer.metadata()
    metadata.next_epoch, metadata.first_number = max(
        (metadata.next_epoch, metadata.first_number), (epoch_at(wall_ns), number_at(wall_ns))
    )
    writer.put_metadata(metadata)
    _skip_ids(writer.cluster, ())
    writer.put_cluster()
    return True


def _skip_ids(cluster: pb.ClusterRecord, known: Iterable[int]) -> None:
    """Go on behind all ids of targets that are known, and behind some more."""
    cluster.next_target = max([cluster.next_target, FIRST_ADDED_TARGET, *known]) + SKIPPED_IDS
    cluster.next_meta_node = max(cluster.next_meta_node, FIRST_META_NODE) + SKIPPED_IDS


def highest_target(request: pb.RegisterRequest) -> int:
    """Of the targets that the process knows and that were added to the cluster; 0 if there is none. An older release
    names only stores."""
    known = [request.highest_target, *(store.target_id for store in request.unnamed_stores)]
    return max((target for target in known if FIRST_ADDED_TARGET < target <= LAST_BELIEVED_TARGET), default=0)


@dataclass(frozen=True, slots=True)
class AdoptedChain:
    """A chain as it goes on after a restore."""

    chain: Chain
    targets: Sequence[Target] = ()  # its members, if the backup may not know them


def adopted_chains(routing: Routing, newest: Mapping[ChainId, pb.KeptChain], wall_ns: int) -> list[AdoptedChain]:
    """Each chain from its newest version, of the backup or of what storage nodes have reported."""
    found = []
    for chain in routing.chains.values():
        kept = newest.get(chain.chain_id)
        targets: list[Target] = []
        if kept is not None and kept.chain.version > chain.version:
            chain = routing_module.chain_from_wire(kept.chain)
            targets = [routing_module.target_from_wire(target) for target in kept.targets]
        found.append(AdoptedChain(with_raised_version(without_serving(chain), wall_ns), targets))
    return found


async def adopt(store: Store, adopted: Sequence[AdoptedChain], highest_target: int, clock: Clock) -> Routing:
    """Store the chains, some in each transaction, because a transaction is bounded; returns the routing after that.

    The mark of the restore goes with the last ones. If the term ends before, the next primary asks all nodes again.
    Chains that were adopted already are newer than what any of them keeps, and nothing was served from them.
    `highest_target` is that of all nodes that have reported. Raises Fenced.
    """
    batches = [adopted[first : first + _BATCH] for first in range(0, max(1, len(adopted)), _BATCH)]
    known = [highest_target, *(target.target_id for one in adopted for target in one.targets)]
    for number, batch in enumerate(batches, 1):
        write = partial(write_adopted, batch=batch, known=known, is_last=number == len(batches))
        _, routing = await retry_forever(partial(store.change, write), clock)
    return routing


async def write_adopted(writer: Writer, batch: Sequence[AdoptedChain], known: Sequence[int], *, is_last: bool) -> None:
    """`known` are all targets that are adopted, with the other batches as well, and the highest that any node knows: no
    id of them is given out."""
    if not await writer.is_restored():
        return  # an earlier attempt of unknown outcome has done it
    for one in batch:
        if writer.routing.chains[one.chain.chain_id] != one.chain:
            writer.put_chains([one.chain], one.targets)
    nodes = {target.node_id for one in batch for target in one.targets}
    for node_id in sorted(nodes - writer.routing.nodes.keys()):  # it has joined since
        writer.put_node(Node(node_id, NodeKind.STORAGE, unknown_domain(node_id), address="", incarnation=0))
    writer.cluster.next_target = max([writer.cluster.next_target, *known])
    if is_last:
        _skip_ids(writer.cluster, known)
        writer.clear_restore_mark()
    writer.put_cluster()


def unknown_domain(node_id: int) -> str:
    """The failure domain of a node that the backup does not know, until its process or an administrator says it. Until
    then it is no one else's."""
    return f"unknown-{node_id}"


def without_serving(chain: Chain) -> Chain:
    """The chain as if all members had died at once: those that served have everything that was acknowledged, and the
    others may lack some of it."""
    served = PublicState.SERVING if chain.serving else PublicState.LASTSRV
    last = tuple(ChainMember(m.target_id, PublicState.LASTSRV) for m in chain.members if m.state is served)
    rest = tuple(ChainMember(m.target_id, PublicState.OFFLINE) for m in chain.members if m.state is not served)
    return dataclasses.replace(chain, members=last + rest)


def raised_routing_version(version: int, wall_ns: int) -> int:
    """With the whole clock, not only its seconds: a store may be restored twice within one."""
    return max(version, (wall_ns << _CHANGES_PER_S) // 10**9)


def epoch_at(wall_ns: int) -> int:
    """An epoch of inode numbers above those that restores of the metadata have reached until that moment."""
    return min(_LAST_EPOCH, max(0, wall_ns // 10**9 - _BEGIN_S) // _EPOCH_S)


def number_at(wall_ns: int) -> int:
    """The inode number within that epoch from which a store counts that is restored at that moment: a clock that runs
    faster than numbers are given out."""
    length_ns = _EPOCH_S * 10**9
    return (max(0, wall_ns - _BEGIN_S * 10**9) % length_ns << _NUMBER_BITS) // length_ns


def with_raised_version(chain: Chain, wall_ns: int) -> Chain:
    minutes = max(0, wall_ns // 10**9 - _BEGIN_S) // 60
    return dataclasses.replace(chain, version=max(chain.version + 1, minutes << _CHANGES_PER_MINUTE))
