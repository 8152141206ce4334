"""The health of targets and disks: one function per reason."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from threefs.health.answers import Answers, listed, node_name
from threefs.health.configuration_health import managers_value
from threefs.health.verdict import Reason, Severity
from threefs.human_readable import count_of, size
from threefs.wire import manager_pb2 as pb

#: A pass of the scrubber that takes its whole interval ends this many intervals after the one before it.
LATE_SCRUB_INTERVALS = 2


def failed_targets(answers: Answers) -> Iterator[Reason]:
    for row, report in answers.reports():
        if report.failure and not report.read_only:
            yield Reason(
                "target_failed",
                Severity.WARN,
                f"target {report.target_id} of {node_name(row.node)} does not serve: {report.failure}",
                "mend what the reason names, then start the process again; replace a failed disk as "
                "deploy/README.md says",
            )


def read_only_disks(answers: Answers) -> Iterator[Reason]:
    for disk, rows in _disks(answers).items():
        full = [report for _, report in rows if report.read_only]
        if full:
            why = next((report.failure for report in full if report.failure), "the disk is full")
            yield Reason(
                "disk_read_only",
                Severity.WARN,
                f"{disk} takes no writes of clients, with {size(_free_bytes(rows))} of "
                f"{size(_capacity_bytes(rows))} free: {why}",
                "remove files, empty the trash, or add a node and run `threefs rebalance`; docs/capacity.md",
            )


def full_chains(answers: Answers) -> Iterator[Reason]:
    """Chains whose head is read-only: it would give way to another target that had room. Those behind it are asked for
    no block any more, so they do not say that they are full."""
    read_only = {report.target_id for _, report in answers.reports() if report.read_only}
    found = []
    for chain in answers.status.chains:
        head = next((member.target_id for member in chain.members if member.state == pb.SERVING), None)
        if head in read_only:
            found.append(f"chain {chain.chain_id}")
    if found:
        yield Reason(
            "chain_full",
            Severity.ERR,
            f"writes are refused, because no serving target has free space: {listed(found)}",
            "remove files (their space is free after about 40 s), or add a node and run `threefs rebalance`; "
            "docs/capacity.md",
        )


def nearly_full_disks(answers: Answers) -> Iterator[Reason]:
    """There is little time left before writes are refused (`full_ratio`)."""
    bound = float(managers_value(answers, "nearly_full_ratio"))
    for disk, rows in _disks(answers).items():
        capacity, free = _capacity_bytes(rows), _free_bytes(rows)
        if not capacity or any(report.read_only for _, report in rows):
            continue
        used = 1 - min(free, capacity) / capacity
        if used >= bound:
            yield Reason(
                "disk_nearly_full",
                Severity.WARN,
                f"{disk} is {used:.1%} full, {size(free)} of {size(capacity)} free "
                f"(the bound is {bound:.0%}; by default writes are refused at 98 %)",
                "remove files, empty the trash, or add a node and run `threefs rebalance`; docs/capacity.md",
            )


def stray_stores(answers: Answers) -> Iterator[Reason]:
    """Not while a restored manager asks what the nodes know: it may need any store."""
    for row in answers.nodes(pb.STORAGE):
        strays = row.stray_stores
        if row.alive and strays.targets and not answers.status.awaited_nodes:
            yield Reason(
                "stray_stores",
                Severity.WARN,
                f"{node_name(row.node)} has {count_of(len(strays.targets), 'store', 'stores')} of targets that the "
                f"cluster does not have, which take {size(strays.bytes)} of its disk: "
                + listed(f"target-{target}" for target in strays.targets),
                "remove these directories of its data_dir by hand, with what is named after them; but not as long as "
                "something is missing since a restore of the manager, or an accepted loss: docs/nodes.md",
            )


def _disks(answers: Answers) -> dict[str, list[tuple[pb.NodeStatus, pb.TargetReport]]]:
    """The targets on each disk, under a name for people. Processes of one machine may share a disk."""
    rows: dict[str, list[tuple[pb.NodeStatus, pb.TargetReport]]] = defaultdict(list)
    for row, report in answers.reports():
        rows[report.disk or f"of node {row.node.node_id}"].append((row, report))
    named = {}
    for found in rows.values():
        nodes = dict.fromkeys(row.node.node_id for row, _ in found)
        named["the disk of " + listed(f"node {node}" for node in nodes)] = found
    return named


def _capacity_bytes(rows: Iterable[tuple[pb.NodeStatus, pb.TargetReport]]) -> int:
    return max((report.capacity_bytes for _, report in rows), default=0)


def _free_bytes(rows: Sequence[tuple[pb.NodeStatus, pb.TargetReport]]) -> int:
    """Of the disk, and the blocks that its targets can use again in their own files."""
    disk = max((report.free_bytes - min(report.reusable_bytes, report.free_bytes) for _, report in rows), default=0)
    return disk + sum(report.reusable_bytes for _, report in rows)


def lost_chunks(answers: Answers) -> Iterator[Reason]:
    found = [(row, report) for row, report in answers.reports() if report.lost_chunks]
    if found:
        yield Reason(
            "chunks_lost",
            Severity.ERR,
            "no replica has these chunks undamaged any more: "
            + listed(
                f"{count_of(report.lost_chunks, 'chunk', 'chunks')} of target {report.target_id} of node "
                f"{row.node.node_id}"
                for row, report in found
            ),
            "`threefs fsck` names the files; restore or remove them",
        )


def unrepaired_chunks(answers: Answers) -> Iterator[Reason]:
    found = [(row, report) for row, report in answers.reports() if report.unrepaired_chunks]
    if found:
        yield Reason(
            "chunks_unrepaired",
            Severity.WARN,
            "damaged chunks are not repaired yet: "
            + listed(
                f"{report.unrepaired_chunks} of target {report.target_id} of node {row.node.node_id}"
                for row, report in found
            ),
            "bring back the other copies of their chains: the repair takes the bytes from one of them",
        )


def damaged_disks(answers: Answers) -> Iterator[Reason]:
    for disk, rows in _disks(answers).items():
        damaged = sum(report.damaged_chunks for _, report in rows)
        if damaged:
            repaired = sum(report.repaired_chunks for _, report in rows)
            yield Reason(
                "disk_damages",
                Severity.WARN,
                f"{disk} has returned wrong bytes of {count_of(damaged, 'chunk', 'chunks')} since its process "
                f"was started; {repaired} repaired (no sound disk returns any)",
                "replace the disk if the number grows; a restart of the process sets it back to 0",
            )


def late_scrubs(answers: Answers) -> Iterator[Reason]:
    late: dict[int, pb.TargetReport] = {}  # by node, the target that waits longest
    for row, report in answers.reports():
        if 0 < LATE_SCRUB_INTERVALS * report.scrub_interval_ms < report.unscrubbed_ms:
            late[row.node.node_id] = max(report, late.get(row.node.node_id, report), key=lambda r: r.unscrubbed_ms)
    for node_id, report in late.items():
        yield Reason(
            "scrub_late",
            Severity.WARN,
            f"target {report.target_id} of node {node_id} was not read in full for {_days(report.unscrubbed_ms)}; it "
            f"should be once in {_days(report.scrub_interval_ms)} (`scrub_interval_s`), and twice that is the bound",
            "raise the rate: `threefs config set scrub_bytes_per_s=...`; the log of the node says if a pass fails",
        )


def _days(milliseconds: int) -> str:
    return f"{milliseconds / 86_400_000:.1f} days"
