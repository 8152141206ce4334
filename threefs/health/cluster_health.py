"""The health of a cluster: which reasons there are to say WARN or ERR, and what to do about each.

One function per reason, here and in the modules about chains and disks. They see what the managers and the meta
services have answered, and do no I/O.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator

from threefs.health import chain_health, configuration_health, disk_health, metadata_health
from threefs.health.answers import Answers, listed, node_name
from threefs.health.verdict import Reason, Severity
from threefs.human_readable import count_of
from threefs.wire import manager_pb2 as pb

#: A twentieth of what leases bear (`threefs/leases.py`).
MAX_CLOCK_PPM = 10_000


def missing_plan(answers: Answers) -> Iterator[Reason]:
    if not answers.status.cluster_id:
        yield Reason(
            "no_plan",
            Severity.ERR,
            "the cluster has no plan yet, so it stores nothing",
            "give it a plan, once: `threefs init`",
        )


def awaited_nodes(answers: Answers) -> Iterator[Reason]:
    """The store of the manager was restored from a backup."""
    if awaited := answers.status.awaited_nodes:
        numbers = " ".join(map(str, awaited))
        yield Reason(
            "restore_awaits_nodes",
            Severity.ERR,
            "the manager was restored from a backup, and nothing is served before all storage nodes have reported what "
            f"they know of their chains; awaited: {listed(f'node {one}' for one in awaited)}",
            "start these nodes, and look into the log of one that runs: it has a store that it cannot open; if their "
            f"disks are lost for good: `threefs chain accept-unheard {numbers}`",
        )


def silent_managers(answers: Answers) -> Iterator[Reason]:
    for address in answers.silent_managers:
        yield Reason(
            "manager_silent",
            Severity.WARN,
            f"the manager at {address} does not answer; another manager does the work",
            "start it again; its log says why it has ended",
        )


def silent_nodes(answers: Answers) -> Iterator[Reason]:
    """Nodes whose heartbeats do not come, by the clock of the manager."""
    for row in answers.status.nodes:
        if row.alive or not row.node.address:
            continue
        seconds = row.silent_ms / 1000
        if row.ended:
            state = f"has ended; its last heartbeat came {seconds:.1f} s ago"
        elif row.heard:
            state = f"has sent no heartbeat for {seconds:.1f} s"
        else:
            state = f"has sent no heartbeat since the manager became the primary {seconds:.1f} s ago"
        yield Reason(
            "node_silent",
            Severity.WARN,
            f"{node_name(row.node)} {state} (T is {answers.lease_s:g} s)",
            "start it, or look at its machine and network; its log says why it has ended"
            + (f". {_if_it_is_lost(answers, row.node)}" if row.node.kind == pb.STORAGE else ""),
        )


def _if_it_is_lost(answers: Answers, node: pb.Node) -> str:
    members = (member.target_id for chain in answers.status.chains for member in chain.members)
    if not node.draining:
        return f"If it does not come back: `threefs node drain {node.node_id}`"
    if any(answers.node_of(target) == node.node_id for target in members):
        return "It drains: its copies are made from the others (`threefs moves`)"
    return f"It is drained: `threefs node remove {node.node_id}` takes it out of the cluster"


def unstarted_nodes(answers: Answers) -> Iterator[Reason]:
    for row in answers.nodes(pb.STORAGE):
        if not row.alive and not row.node.address:
            yield Reason(
                "node_not_started",
                Severity.WARN,
                f"{node_name(row.node)} is in the plan and has not registered, or another node has its address now",
                f"start its process, or take it out of the plan: `threefs node remove {row.node.node_id}`",
            )


def meta_services(answers: Answers) -> Iterator[Reason]:
    """Without a meta service no name can be looked up."""
    rows = answers.nodes(pb.META)
    silent = set(answers.silent_meta_nodes)
    if answers.status.cluster_id and not any(row.alive and row.node.node_id not in silent for row in rows):
        yield Reason(
            "no_meta_service",
            Severity.ERR,
            f"none of {count_of(len(rows), 'meta service', 'meta services')} answers: no name can be looked up",
            "start one; its log says why it has ended (a refused metadata store is explained in docs/backup.md)",
        )
    for row in rows:
        if row.alive and row.node.node_id in silent:
            yield Reason(
                "meta_service_silent",
                Severity.WARN,
                f"{node_name(row.node)} sends heartbeats and does not answer a request for its statistics",
                "look at its log and its engine; check that this machine reaches its port",
            )


def failed_links(answers: Answers) -> Iterator[Reason]:
    """Between nodes that live: one that has ended is reached by nobody, and that is another reason."""
    alive = {row.node.node_id for row in answers.nodes(pb.STORAGE) if row.alive}
    for row in answers.nodes(pb.STORAGE):
        for peer in row.unreachable if row.alive else ():
            if peer.node_id not in alive:
                continue
            yield Reason(
                "link_failed",
                Severity.WARN,
                f"{node_name(row.node)} cannot reach node {peer.node_id} for {peer.unreachable_ms / 1000:.0f} s, "
                "although both may reach the manager",
                "mend the network or the firewall between the two machines; the targets return by themselves",
            )


def several_releases(answers: Answers) -> Iterator[Reason]:
    """An upgrade that was begun and not ended. A process that does not say its release is older than this one."""
    found: dict[str, list[str]] = defaultdict(list)
    if answers.status.manager_release:
        found[answers.status.manager_release].append("the primary manager")
    for row in answers.status.nodes:
        if row.alive and row.heard:
            found[row.release or "an older one"].append(f"node {row.node.node_id}")
    if len(found) > 1:
        yield Reason(
            "several_releases",
            Severity.WARN,
            f"{len(found)} releases run: "
            + "; ".join(f"{release} ({listed(names)})" for release, names in sorted(found.items())),
            "restart the older processes one after the other: docs/upgrade.md",
        )


def clock_rates(answers: Answers) -> Iterator[Reason]:
    """Leases bear a clock that runs a fifth faster than another one. No sound clock comes near to that."""
    for row in answers.status.nodes:
        if row.alive and row.HasField("clock_ppm") and abs(row.clock_ppm) >= MAX_CLOCK_PPM:
            speed = "faster" if row.clock_ppm > 0 else "slower"
            yield Reason(
                "clock_rate",
                Severity.WARN,
                f"the clock of {node_name(row.node)} runs {abs(row.clock_ppm) / 10_000:.2g} % {speed} than that of the "
                f"primary manager (the bound is {MAX_CLOCK_PPM / 10_000:g} %; leases bear 20 % between two machines)",
                "mend the clock source of its machine, or move the process to another one; if many nodes are named, "
                "the clock of the manager is the wrong one",
            )


CHECKS: tuple[Callable[[Answers], Iterator[Reason]], ...] = (
    missing_plan,
    awaited_nodes,
    metadata_health.full_stores,
    chain_health.unchangeable_chains,
    chain_health.unserved_chains,
    chain_health.unwritable_chains,
    chain_health.degraded_chains,
    disk_health.full_chains,
    disk_health.lost_chunks,
    meta_services,
    silent_managers,
    silent_nodes,
    unstarted_nodes,
    failed_links,
    disk_health.failed_targets,
    disk_health.read_only_disks,
    disk_health.nearly_full_disks,
    disk_health.stray_stores,
    disk_health.unrepaired_chunks,
    disk_health.damaged_disks,
    disk_health.late_scrubs,
    chain_health.held_targets,
    chain_health.stuck_moves,
    chain_health.stuck_drains,
    chain_health.stuck_copies,
    chain_health.chains_in_one_domain,
    several_releases,
    clock_rates,
    configuration_health.lagging_processes,
    configuration_health.refused_values,
    configuration_health.lagging_clients,
    configuration_health.values_refused_by_clients,
    metadata_health.nearly_full_stores,
    metadata_health.late_backups,
    metadata_health.silent_backups,
    metadata_health.refused_stores,
)


def reasons(answers: Answers) -> list[Reason]:
    return [reason for check in CHECKS for reason in check(answers)]
