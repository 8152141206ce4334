"""Stores that are not what a target should have: those of another node, and those that can no longer be read.

A node does not begin with empty stores on another node's disk: disks that were exchanged can be exchanged back. A store
whose table is damaged is put aside, and the target begins with an empty one. The chain takes that for an exchanged
disk. What was put aside is kept until it happens again.
"""

import shutil
from pathlib import Path

from threefs.errors import StrangeStore
from threefs.ids import NodeId, TargetId
from threefs.routing import Chain, PublicState, Routing


def has_other_copy(chain: Chain, target_id: TargetId) -> bool:
    """Whether another target may have all that this one should have."""
    return any(
        member.target_id != target_id and member.state in (PublicState.SERVING, PublicState.LASTSRV)
        for member in chain.members
    )


def check_disk(directory: Path, node_id: NodeId, routing: Routing) -> None:
    """Raises StrangeStore if targets of this node are missing where those of another one lie."""
    names = [path.name.removeprefix("target-") for path in directory.glob("target-*")]
    found = {TargetId(int(name)) for name in names if name.isdecimal()}
    own = {target.target_id for target in routing.targets.values() if target.node_id == node_id}
    strange = min(found - own, default=None)
    if strange is None or own <= found:
        return
    owner = routing.targets.get(strange)
    whose = f"which is node {owner.node_id}'s" if owner is not None else "which is of no node"
    raise StrangeStore(
        f"{directory} holds target {strange}, {whose}, and not target {min(own - found)} of node {node_id}: mount the "
        "disk of this node there, or correct node_id or data_dir in the settings. If this disk is to be used anew, "
        "empty the directory first"
    )


def quarantine(directory: Path) -> Path:
    """Where it is now. One that was put aside before is removed: the disk shall not fill up with them."""
    aside = directory.with_name(f"{directory.name}.damaged")
    shutil.rmtree(aside, ignore_errors=True)
    directory.rename(aside)
    return aside
