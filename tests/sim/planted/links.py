"""Failed links between storage nodes: who is put out of a chain for one, when, and when it returns."""

import math
from typing import Any

from threefs_manager.chains.link_failures import LinkFailures
from threefs_manager.nodes.failure_detector import FailureDetector
from threefs_storage.health.disk_stall import DiskStall
from threefs_storage.peer_reachability import PeerReachability

from tests.sim.planted.registry import plant, plant_for, put
from threefs.cluster.routing_watcher import RoutingWatcher
from threefs.rpc import frames
from threefs.rpc.connection_pool import ConnectionPool

_CONTROLLER = "unit/services/threefs_manager/chains/test_controller.py"
_DECISION = "unit/services/threefs_manager/chains/test_link_failures.py"


@plant
def failed_links_are_ignored() -> None:
    """Writes to a chain wait as long as the link between two of its members is down."""
    put(FailureDetector, "unreachable_peers", lambda self, lease_s: {})


@plant
def failed_links_are_not_reported() -> None:
    """A storage process tells nobody which peers it cannot reach."""
    put(PeerReachability, "unreachable", lambda self: [])


@plant_for(f"{_CONTROLLER}::test_a_target_that_its_predecessor_cannot_reach_gives_way")
def unreachable_target_is_put_out_at_once() -> None:
    """R9: a target that its predecessor cannot reach is taken for dead while it holds a lease."""
    withhold_lease = FailureDetector.withhold_lease

    def hasty(self: FailureDetector, chain: Any, target: Any) -> None:
        withhold_lease(self, chain, target)
        if target is not None:
            self.fence([target])

    put(FailureDetector, "withhold_lease", hasty)


@plant
def unreachable_target_returns() -> None:
    """A target returns behind a tail that cannot reach it, and stops writes again and again."""
    put(LinkFailures, "held_targets", lambda self, chain: [])


@plant_for(f"{_DECISION}::test_the_hold_off_doubles_with_each_failure_and_has_a_bound")
def link_that_comes_and_goes_is_trusted() -> None:
    """There is no hold-off: a target is back as soon as its link works, and out as soon as it does not."""
    put(LinkFailures, "_hold_off_left_s", lambda self, reporter, peer: -math.inf)


@plant
def failed_link_leaves_too_few() -> None:
    """A target is put out although the others are too few for writes."""
    put(LinkFailures, "_may_leave", lambda self, chain, member, observed: len(chain.serving) > 1)


@plant_for(f"{_DECISION}::test_a_node_that_reports_one_peer_after_the_other_gives_way_itself")
def whoever_reports_is_believed() -> None:
    """A node that is ill, or lies, puts all others out of its chains."""
    put(LinkFailures, "_reported_by", lambda self, reporter: set())


@plant_for("sim/test_failed_links.py::test_writes_go_on_within_four_lease_times[1-narrow]")
def link_that_loses_large_packets_works() -> None:
    """Probes are small, and pass where writes do not."""
    put(frames, "PROBE_BYTES", 0)


@plant_for("unit/services/threefs_storage/test_peer_reachability.py::test_a_slow_or_busy_peer_is_reached")
def slow_peer_is_a_failed_link() -> None:
    """A peer that takes long to answer counts as one that cannot be reached."""

    async def fails(self: PeerReachability, node_id: Any, timeout_s: float) -> None:
        peer = self._peers[node_id]
        if peer.unreachable_since is None:
            peer.unreachable_since = self._clock.monotonic()

    put(PeerReachability, "_probe", fails)


@plant_for("unit/threefs/rpc/test_connection_pool.py::test_a_check_ends_connections_that_do_not_answer_and_no_others")
def dead_connections_are_kept() -> None:
    """A machine lost power and is back, but calls to it wait in an old connection until the kernel tries again."""

    async def trust(self: ConnectionPool, address: str, timeout_s: float) -> None:
        pass

    put(ConnectionPool, "check", trust)


@plant_for(
    "unit/threefs/cluster/test_routing_watcher.py::test_the_connections_to_a_process_that_was_started_anew_are_checked"
)
def restart_of_a_process_says_nothing_of_its_connections() -> None:
    """Nobody looks at the connections to a process that was started anew."""
    put(RoutingWatcher, "_check_connections", lambda self, known: None)


@plant
def removed_peers_are_asked_for() -> None:
    """A storage process ends once a node is removed that it could not reach: it cannot do without its record."""
    put(PeerReachability, "_forget_removed", lambda self: [self._routing().nodes[node] for node in self._peers])


@plant
def process_with_a_hanging_disk_is_not_silent() -> None:
    """Writes wait as long as the disk of a replica hangs."""
    put(DiskStall, "is_over", lambda self, targets: False)
