"""The health of the stores of metadata and manager: their disks, their backups, and copies that were refused. One
function per reason."""

from collections.abc import Iterator

from threefs.health.answers import Answers, node_name
from threefs.health.configuration_health import managers_value
from threefs.health.verdict import Reason, Severity
from threefs.human_readable import size
from threefs.wire import common_pb2

#: `threefs backup` copies every second, so a copy that is further behind has a problem.
MAX_BACKUP_LAG_S = 10.0
#: A backup that follows the stores says how it is every few seconds.
MAX_BACKUP_SILENCE_S = 30.0


def _store_disks(answers: Answers) -> Iterator[tuple[str, common_pb2.StoreDisk]]:
    """Of the embedded stores, with the name of the service for people."""
    if answers.status.HasField("store_disk"):
        yield "the manager", answers.status.store_disk
    for row in answers.status.nodes:
        if row.node.node_id in answers.meta_disks:
            yield node_name(row.node), answers.meta_disks[row.node.node_id]


def full_stores(answers: Answers) -> Iterator[Reason]:
    for service, disk in _store_disks(answers):
        if disk.full:
            yield Reason(
                "store_full",
                Severity.ERR,
                f"{service} refuses all changes, because the disk of its store {disk.directory} is full: "
                f"{size(disk.free_bytes)} of {size(disk.capacity_bytes)} free; what it has can still be read",
                f"free space on that disk, so that {size(disk.needed_bytes)} are free, or make it larger; the store "
                "takes changes again by itself: docs/troubleshooting.md",
            )
    for node, disk in answers.meta_disks.items():
        if disk.removals_only and not disk.full:
            yield Reason(
                "store_removals_only",
                Severity.ERR,
                f"meta service {node} takes only removals, because the disk of its store {disk.directory} is nearly "
                f"full: {size(disk.free_bytes)} of {size(disk.capacity_bytes)} free",
                "free space on that disk, or make it larger: docs/troubleshooting.md",
            )


def nearly_full_stores(answers: Answers) -> Iterator[Reason]:
    bound = float(managers_value(answers, "nearly_full_ratio"))
    for service, disk in _store_disks(answers):
        used = 1 - disk.free_bytes / disk.capacity_bytes if disk.capacity_bytes else 0.0
        if used >= bound and not disk.full:
            yield Reason(
                "store_nearly_full",
                Severity.WARN,
                f"the disk of {service} with its store {disk.directory} is {used:.1%} full, {size(disk.free_bytes)} of "
                f"{size(disk.capacity_bytes)} free (the bound is {bound:.0%}); a full one takes no changes, not even "
                "removals",
                "free space on that disk, or make it larger: docs/capacity.md",
            )


def late_backups(answers: Answers) -> Iterator[Reason]:
    """Copies that are not up to date, as their backups say."""
    for backup in answers.status.backups:
        for store in backup.stores:
            behind_s = store.behind_ms / 1000
            if store.complete and behind_s <= MAX_BACKUP_LAG_S:
                continue
            late = f"is {behind_s:.0f} s behind (the bound is {MAX_BACKUP_LAG_S:g} s)"
            yield Reason(
                "backup_late",
                Severity.WARN,
                f"the copy of the {store.store} store in the backup at {backup.name} "
                + (late if store.complete else "is not whole")
                + (f": {store.failure}" if store.failure else ""),
                "mend what the reason names, or look at the disk of the backup; what it lacks is lost with the store: "
                "docs/backup.md",
            )


def silent_backups(answers: Answers) -> Iterator[Reason]:
    """Backups that said they would go on."""
    for backup in answers.status.backups:
        silent_s, interval_s = backup.silent_ms / 1000, backup.report_interval_ms / 1000
        if interval_s and silent_s > max(MAX_BACKUP_SILENCE_S, 3 * interval_s):
            yield Reason(
                "backup_silent",
                Severity.WARN,
                f"the backup at {backup.name} has not said how it is for {silent_s:.0f} s (it should every "
                f"{interval_s:g} s)",
                "start `threefs backup` again, or look at its machine; if it was stopped for good, this ends with the "
                "next start of the manager, or after a week",
            )


def refused_stores(answers: Answers) -> Iterator[Reason]:
    """An older copy, or a disk that is not mounted."""
    for refused in answers.status.refused_stores:
        where = f"the meta service at {refused.address}" if refused.address else "a meta service"
        yield Reason(
            "metadata_store_refused",
            Severity.WARN,
            f"the store of {where} was refused {refused.ago_ms / 1000:.0f} s ago: {refused.reason}",
            "give it the right store, or take the service away (an hour later this ends): docs/backup.md",
        )
