"""Stores that a target must not use: those of another node, and those that can no longer be read.

A node does not start with empty stores on another node's disk, so disks that were mixed up can be put right. A store
whose table is damaged goes to quarantine, and its target starts with an empty one, which the chain treats like a new
disk. The quarantined store stays until the next one takes its place, the disk is full, or the target has moved away.

The empty store is marked: an administrator who has taken the disk out of service waits for another disk, and would take
it for that one.
"""

from collections.abc import Callable, Collection
from pathlib import Path

import structlog

from threefs.env.disk import LEAVING, Disk
from threefs.errors import FULL_DISK, DiskFailed, NoSpace, StrangeStore, ThreefsError
from threefs.ids import NodeId, TargetId
from threefs.routing import Chain, PublicState, Routing
from threefs_storage.engine.ballast import BALLAST_FILE
from threefs_storage.engine.engine import ChunkEngine

_REPLACEMENT = "replacement"
_LOG = structlog.get_logger()


def has_other_copy(chain: Chain, target_id: TargetId) -> bool:
    """Whether another member of the chain may have everything that this target should have."""
    return any(
        member.target_id != target_id and member.state in (PublicState.SERVING, PublicState.LASTSRV)
        for member in chain.members
    )


def check_disk(directory: Path, node_id: NodeId, routing: Routing, *, is_own: bool = False) -> None:
    """Raises StrangeStore if targets of this node are missing where those of another one lie.

    `is_own`: the disk is known to be this node's. Then a store that the routing does not name was set aside, and what
    is missing was never here, or is lost.
    """
    names = [path.name.removeprefix("target-") for path in directory.glob("target-*")]
    found = {TargetId(int(name)) for name in names if name.isdecimal()}
    own = {target.target_id for target in routing.targets.values() if target.node_id == node_id}
    strange = min((t for t in found - own if t in routing.targets or not is_own), default=None)
    if strange is None or own <= found:
        return
    owner = routing.targets.get(strange)
    whose = f"which belongs to node {owner.node_id}" if owner is not None else "which belongs to no node"
    raise StrangeStore(
        f"{directory} holds target {strange}, {whose}, and not target {min(own - found)} of node {node_id}: mount the "
        "disk of this node there, or correct node_id or data_dir in the settings. If this disk is to be used anew, "
        "empty the directory first"
    )


async def quarantine(directory: Path, disk: Disk, is_kept: Callable[[], bool]) -> Path | None:
    """Move a store away, and return its new place; None if it is kept where it is. An earlier one there is removed, so
    that they do not fill the disk. Its ballast goes as well: on a full disk the store that takes its place has no other
    room to be made in. Raises NoSpace, DiskFailed."""
    if is_kept():
        return None
    place = place_of(directory)
    await disk.remove_directory(place)
    if is_kept():  # since now: the removal of a large one takes long
        return None
    _move(directory, place)
    return place


def _move(directory: Path, place: Path) -> None:
    assert place.parent == directory.parent, "a quarantined store says that the one beside it is on the same disk"
    try:
        (directory / BALLAST_FILE).unlink(missing_ok=True)
        directory.rename(place)
    except OSError as error:
        if error.errno in FULL_DISK:
            raise NoSpace(f"the disk of {directory} has no room for another name") from error
        raise DiskFailed(f"{directory} cannot be moved away: {error.strerror}") from error


def place_of(directory: Path) -> Path:
    """Where the quarantined store of this directory is, if there is one."""
    return directory.with_name(f"{directory.name}.damaged")


def is_quarantined(directory: Path, names: Collection[str]) -> bool:
    """Whether there is a quarantined store of this directory, or what its removal has left. `names` are those beside
    the directory."""
    place = place_of(directory).name
    return not {place, f"{place}{LEAVING}"}.isdisjoint(names)


def mark_replacement(engine: ChunkEngine) -> None:
    """Mark a store that was made in the place of a damaged one. Not durable at once."""
    try:
        if engine.note(_REPLACEMENT) is None:
            engine.put_note(_REPLACEMENT, b"")
    except ThreefsError as error:
        _LOG.warning("a store that replaces a damaged one cannot be marked", error=str(error))


def is_replacement(engine: ChunkEngine) -> bool:
    """A mark that cannot be read counts."""
    try:
        return engine.note(_REPLACEMENT) is not None
    except ThreefsError:
        return True
