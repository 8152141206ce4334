"""What moves while a cluster changes, and how little could: from the manager's answers. Pure but for `Watcher`."""

import asyncio
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from threefs_cli.readiness import incomplete_chains
from threefs_manager.placement.rebalance import shares

from threefs import cluster_key
from threefs.env.clock import CLOCK
from threefs.env.net import RealNet
from threefs.env.random import RANDOM
from threefs.errors import ThreefsError
from threefs.ids import NodeId
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.handshake import Identity
from threefs.rpc.methods import GET_STATUS
from threefs.wire import manager_pb2 as pb

_LOOK_S = 0.1
_CALL_S = 5.0


@dataclass
class Moved:
    """The copies that one change of the cluster has made: targets that were added, and their bytes."""

    copied: dict[int, int] = field(default_factory=dict)  # target -> bytes it has been seen to have at most
    again: int = 0  # bytes that were copied a second time, because a process had died
    _newest: dict[int, int] = field(default_factory=dict)

    def look(self, status: pb.GetStatusReply) -> None:
        progress = {row.chain_id: row for row in status.move_progress}
        used = used_bytes(status)
        for move in status.moves:
            if not move.added_target:
                continue
            row = progress.get(move.chain_id, pb.MoveProgress())
            before = self._newest.get(move.added_target, 0)
            self.again += max(0, before - row.copied_bytes) if row.total_bytes else 0
            self._newest[move.added_target] = row.copied_bytes if row.total_bytes else before
            self.copied.setdefault(move.added_target, 0)
        for target in self.copied:
            self.copied[target] = max(self.copied[target], used.get(target, 0), self._newest.get(target, 0))

    @property
    def bytes(self) -> int:
        return sum(self.copied.values()) + self.again

    def over(self, least_targets: int) -> float:
        """The bytes over those of the least number of targets, each with as many bytes as these have on average."""
        mean = sum(self.copied.values()) / len(self.copied)
        return self.bytes / (least_targets * mean)


def used_bytes(status: pb.GetStatusReply) -> dict[int, int]:
    return {report.target_id: report.used_bytes for node in status.nodes for report in node.targets}


def held(status: pb.GetStatusReply) -> Counter[NodeId]:
    """How many members of chains each storage node has."""
    node_of = {report.target_id: node.node.node_id for node in status.nodes for report in node.targets}
    return Counter(
        NodeId(node_of[member.target_id])
        for chain in status.chains
        for member in chain.members
        if member.target_id in node_of
    )


def least_targets(before: Counter[NodeId], staying: set[NodeId]) -> int:
    """How many targets must be copied at least until the nodes that stay carry equally many, and the others none."""
    goal = shares(before, staying, before.total(), {})
    return sum(max(0, goal[node] - before[node]) for node in staying)


def is_at_rest(status: pb.GetStatusReply) -> bool:
    return not (status.moves or status.more_moves or incomplete_chains(status))


class Watcher:
    """Asks the manager again and again, in a thread of its own."""

    def __init__(self, address: str, key_file: Path) -> None:
        self.moved = Moved()
        self.newest = pb.GetStatusReply()
        self._address, self._token = address, cluster_key.read(key_file)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._watch()))
        self._thread.start()

    def begin(self) -> None:
        """The next change begins."""
        with self._lock:
            self.moved = Moved()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    async def _watch(self) -> None:
        pool = ConnectionPool(RealNet(), Identity("", RANDOM.token(16).hex(), self._token))
        while not self._stopping.is_set():
            try:
                found = await pool.call(self._address, GET_STATUS, pb.GetStatusRequest(), timeout_s=_CALL_S)
            except ThreefsError:  # the machine is busy: the next look says as much
                found = None
            if found is not None:
                with self._lock:
                    self.newest = found
                    self.moved.look(found)
            await CLOCK.sleep(_LOOK_S)
        await pool.close()
