"""The copy of the routing that a storage service keeps in its data directory.

If the store of the manager is lost with all its backups, these copies say which nodes, targets, chains and tables the
cluster has. A copy is replaced when one of these changes, not with every version of a chain: each target keeps the
newest version of its own chain, durably before it acts in it.

Tables of chains are never removed. So a routing that lacks a table of the copy is that of a manager whose store was
restored from a backup of before the table was made. It is refused: its manager would give the numbers of the lost
chains and targets to new ones, over the chunks of the old ones, and the copy that knows better would be replaced.

A copy forgets a target that has left the cluster, whose store may lie on a disk still. It never forgets the highest
number of a target, so that no manager that is restored or rebuilt gives the number of such a target to a new one.
"""

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Self

import structlog

from threefs import routing as routing_module
from threefs.cluster.manager_records import LAST_BELIEVED_TARGET
from threefs.errors import Corrupt, NotFound, StrangeStore
from threefs.ids import TargetId
from threefs.kv import records
from threefs.routing import Routing, Target
from threefs.wire import manager_pb2 as pb

NAME = "routing"
_LOG = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Copy:
    routing: Routing
    unnamed: dict[TargetId, Target]  # that have or had a store here and are not in the routing

    def targets(self) -> Iterator[Target]:
        return chain(self.routing.targets.values(), self.unnamed.values())

    def find(self, target_id: TargetId) -> Target | None:
        return self.routing.targets.get(target_id) or self.unnamed.get(target_id)

    def to_wire(self, node_id: int, highest_target: int) -> pb.KeptRouting:
        return pb.KeptRouting(
            node_id=node_id,
            routing=routing_module.to_wire(self.routing),
            unnamed=map(routing_module.target_to_wire, self.unnamed.values()),
            highest_target=highest_target,
        )

    @classmethod
    def from_wire(cls, kept: pb.KeptRouting) -> Self:
        unnamed = map(routing_module.target_from_wire, kept.unnamed)
        return cls(routing_module.from_wire(kept.routing), {target.target_id: target for target in unnamed})


class KeptRouting:
    """The copy in one data directory."""

    def __init__(self, data_dir: Path, node_id: int) -> None:
        self.highest_target = 0  # of all that the copies here have ever named, as far as they were read
        self._file = data_dir / NAME
        self._node_id = node_id
        self._kept: _Copy | None = None
        self._was_there = False  # a copy, at a time since this process began

    def check(self, routing: Routing) -> None:
        """Raises StrangeStore if the routing lacks a table that the copy has."""
        copy = self._kept or self._stored()
        if copy is None or copy.routing.cluster_id != routing.cluster_id:
            return
        known = copy.routing
        lacking = sorted(table for table, chains in known.tables.items() if routing.tables.get(table) != chains)
        if lacking:
            raise StrangeStore(
                f"the manager's store lacks chain table {lacking[0]}, which {self._file} has: it was restored from a "
                "backup of before the table was made. Stop the manager, move its store away, and make one from the "
                "copies of the storage services: `threefs manager rebuild` (docs/backup.md)"
            )

    def is_own(self) -> bool:
        """Whether there is a copy that this node has stored."""
        try:
            return load(self._file).node_id == self._node_id
        except (NotFound, Corrupt):
            return False

    def own_targets(self) -> list[TargetId]:
        """The targets that this node has in the copy, also those that its routing does not name."""
        copy = self._kept or self._stored()
        return [] if copy is None else [t.target_id for t in copy.targets() if t.node_id == self._node_id]

    def keep(self, routing: Routing, held: Collection[int] = ()) -> None:
        """Store the routing durably if its nodes, targets or tables differ from those of the copy. A disk that does not
        take it, or that is away, is tried again with the next routing. Raises StrangeStore.

        `held` are the targets that have a store here, or had one that may come back. A restored manager may not know
        one of them yet, and a copy without it would not name it at the next start, from which on the manager could not
        hear of it. Such a target stays beside the routing: in it, a manager made from the copy would have its store
        deleted.
        """
        before = self._kept or self._stored()
        beside = [before.find(TargetId(t)) for t in held if t not in routing.targets] if before is not None else []
        fresh = _Copy(routing, {target.target_id: target for target in beside if target is not None})
        if self._kept is not None and _same_shape(self._kept, fresh):
            return
        self.check(routing)
        self.highest_target = max([self.highest_target, *routing.targets])
        try:
            if self._was_there:
                self._file.stat()  # without it the disk is away, and a copy in the empty mount point would hide that
            _replace(self._file, records.encode(fresh.to_wire(self._node_id, self.highest_target)))
        except OSError as error:
            _LOG.warning("the copy of the routing cannot be stored", file=str(self._file), error=str(error))
            return
        self._kept, self._was_there = fresh, True

    def _stored(self) -> _Copy | None:
        """The copy on the disk; None if there is none that can be read."""
        self._was_there |= self._file.exists()
        try:
            kept = load(self._file)
        except NotFound:
            return None
        except Corrupt as error:
            _LOG.warning("the copy of the routing is damaged and is replaced", error=str(error))
            return None
        self.highest_target = max(self.highest_target, highest_target(kept))
        return _Copy.from_wire(kept)


def load(file: Path) -> pb.KeptRouting:
    """Raises NotFound, Corrupt."""
    try:
        value = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"there is no {file}; a storage service keeps it in its data_dir") from None
    try:
        return records.decode(value, pb.KeptRouting, NAME.encode())
    except Corrupt as error:
        raise Corrupt(f"{file} is damaged: {error}") from None


def highest_target(kept: pb.KeptRouting) -> int:
    """Of all targets that this copy and those before it have named, but for numbers that no cluster reaches."""
    known = [kept.highest_target, *(target.target_id for target in (*kept.routing.targets, *kept.unnamed))]
    return max((number for number in known if number <= LAST_BELIEVED_TARGET), default=0)


def _same_shape(kept: _Copy, fresh: _Copy) -> bool:
    """Whether both differ at most in versions and states of chains, and in where nodes are reached."""
    one, other = kept.routing, fresh.routing
    return (
        kept.unnamed == fresh.unnamed
        and one.targets == other.targets
        and one.tables == other.tables
        and (one.default_table, one.lease_ms, one.min_replicas, one.replicas)
        == (other.default_table, other.lease_ms, other.min_replicas, other.replicas)
        and _nodes(one) == _nodes(other)
    )


def _nodes(routing: Routing) -> dict[int, tuple[int, str, bool]]:
    return {node.node_id: (node.kind.value, node.domain, node.draining) for node in routing.nodes.values()}


def _replace(file: Path, content: bytes) -> None:
    fresh = file.with_name(file.name + ".new")
    with fresh.open("wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    fresh.replace(file)
    directory = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
