"""Who is here: the last heartbeat of each node. In memory only; a new manager hears of everyone soon."""

from collections.abc import Sequence
from dataclasses import dataclass

from threefs.env.clock import Clock
from threefs.wire import manager_pb2 as pb


@dataclass(slots=True)
class Heard:
    at: float
    incarnation: int
    targets: Sequence[pb.TargetReport] = ()


class Membership:
    def __init__(self, clock: Clock, silent_after_s: float) -> None:
        self._clock = clock
        self._silent_after_s = silent_after_s
        self._began = clock.monotonic()
        self._heard: dict[int, Heard] = {}

    def hear(self, node_id: int, incarnation: int, targets: Sequence[pb.TargetReport]) -> None:
        self._heard[node_id] = Heard(self._clock.monotonic(), incarnation, targets)

    def status(self, node: pb.Node) -> pb.NodeStatus:
        heard = self._heard.get(node.node_id)
        silent_s = self._clock.monotonic() - (heard.at if heard is not None else self._began)
        return pb.NodeStatus(
            node=node,
            alive=heard is not None and silent_s < self._silent_after_s,
            silent_ms=int(silent_s * 1000),
            targets=heard.targets if heard is not None else (),
        )
