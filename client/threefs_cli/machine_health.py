"""Whether a machine is fit for a service: the reasons against it. One function per reason; they do no I/O."""

import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from threefs.configuration import KEYS
from threefs.env.machine import ClockFacts, FileSystemFacts, SyncFacts
from threefs.health.verdict import Reason, Severity
from threefs_cli import output

#: For mounts. Programs are watched and stopped by `pidfd_open`, which came one release earlier.
OLDEST_KERNEL = (5, 4)
#: The limit in deploy/systemd is 1,048,576. A service keeps 512 for itself and accepts connections with the rest.
FEW_DESCRIPTORS = 65_536
TOO_FEW_DESCRIPTORS = 1_024
#: A disk with a protected cache takes some 15 µs and more for a sync, with the way through the file system.
IMPLAUSIBLE_SYNC_S = 5e-6
#: Every acknowledged change waits for a sync at each replica.
SLOW_SYNC_S = 0.020
LITTLE_FREE_BYTES = 2 << 30
NEARLY_FULL_RATIO = float(KEYS["nearly_full_ratio"].default)  # of a disk; a cluster may have another bound
LONG_SUSPENSION_S = 1.0

_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_REMOTE = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs"})
_NO_BARRIERS = frozenset({"nobarrier", "barrier=0"})


@dataclass(frozen=True, slots=True)
class DirectoryFacts:
    """A data directory, or its nearest ancestor that exists."""

    path: str
    existing: str  # equal to `path` if it exists
    is_directory: bool
    writable: bool
    mode: int  # permission bits of `existing`
    file_system: FileSystemFacts | None = None
    syncs: SyncFacts | None = None
    failure: str = ""  # why it could not be measured


@dataclass(frozen=True, slots=True)
class Machine:
    kernel: tuple[int, int] | None
    descriptors: int | None  # the hard limit of open files; None: no limit
    clock: ClockFacts
    fuse_device: bool  # /dev/fuse can be opened
    fuse_helper: bool  # fusermount3 is found
    refused_ports: Sequence[tuple[str, str]] = ()  # "host:port", and why nothing can listen there
    directories: Sequence[DirectoryFacts] = ()


def old_kernel(machine: Machine) -> Iterator[Reason]:
    least = ".".join(map(str, OLDEST_KERNEL))
    if machine.kernel is None or machine.kernel < OLDEST_KERNEL:
        found = "not Linux" if machine.kernel is None else "Linux " + ".".join(map(str, machine.kernel))
        yield Reason("kernel_old", Severity.ERR, f"the system is {found}; Linux {least} is the oldest", "upgrade it")


def few_descriptors(machine: Machine) -> Iterator[Reason]:
    limit = machine.descriptors
    if limit is not None and limit < FEW_DESCRIPTORS:
        yield Reason(
            "few_descriptors",
            Severity.ERR if limit < TOO_FEW_DESCRIPTORS else Severity.WARN,
            f"a process may open {limit:,} files (`ulimit -Hn`), less than {FEW_DESCRIPTORS:,}; each connection is one",
            "raise the hard limit in /etc/security/limits.conf; services of systemd have LimitNOFILE of their own",
        )


def suspended_machine(machine: Machine) -> Iterator[Reason]:
    if machine.clock.suspended_s > LONG_SUSPENSION_S:
        yield Reason(
            "machine_suspends",
            Severity.WARN,
            f"this machine has been suspended for {machine.clock.suspended_s:.0f} s since it was started "
            "(BOOTTIME against MONOTONIC); a service loses its leases while it sleeps",
            "turn suspension off: `systemctl mask sleep.target suspend.target hibernate.target`",
        )


def wrong_clock(machine: Machine) -> Iterator[Reason]:
    if machine.clock.in_step is False:
        yield Reason(
            "clock_not_synchronised",
            Severity.WARN,
            "nothing keeps the wall clock right (adjtimex says TIME_ERROR); times of files would be wrong, "
            "though no decision of a service depends on them",
            "run chrony or systemd-timesyncd",
        )


def missing_fuse(machine: Machine) -> Iterator[Reason]:
    if not machine.fuse_device:
        yield Reason(
            "no_fuse_device",
            Severity.WARN,
            "/dev/fuse cannot be opened, so `threefs mount` will not work here (services do not need it)",
            "`modprobe fuse`; give a container --device /dev/fuse",
        )
    if not machine.fuse_helper:
        yield Reason(
            "no_fuse_helper",
            Severity.WARN,
            "fusermount3 is not found, so only root can mount here (services do not need it)",
            "install the package fuse3",
        )


def taken_ports(machine: Machine) -> Iterator[Reason]:
    for address, why in machine.refused_ports:
        yield Reason(
            "port_refused",
            Severity.ERR,
            f"no service can listen at {address}: {why}",
            "stop the process that has the port (`ss -ltnp`), correct the address, or choose another port",
        )


def unusable_directories(machine: Machine) -> Iterator[Reason]:
    for found in machine.directories:
        if not found.is_directory:
            why = f"{found.existing} is not a directory"
        elif not found.writable:
            why = f"this user may not write in {found.existing}"
        elif found.failure:
            why = found.failure
        else:
            continue
        yield Reason(
            "directory_unusable",
            Severity.ERR,
            f"{found.path} cannot hold data: {why}",
            "correct its owner and mode, or run this command as the user of the service (`sudo -u threefs`)",
        )


def missing_directories(machine: Machine) -> Iterator[Reason]:
    for found in machine.directories:
        if found.existing != found.path and found.is_directory:
            yield Reason(
                "directory_missing",
                Severity.WARN,
                f"{found.path} does not exist; a service would make it on the disk of {found.existing}",
                "mount the disk that is meant, and make the directory there",
            )


def open_directories(machine: Machine) -> Iterator[Reason]:
    for found in machine.directories:
        is_there = found.existing == found.path and found.is_directory
        if is_there and found.mode & (stat.S_IRWXG | stat.S_IRWXO):
            yield Reason(
                "directory_open",
                Severity.WARN,
                f"{found.path} has mode {found.mode:04o}: other users could reach the content of all files (0700 is "
                "the bound)",
                f"`chmod 0700 {found.path}`",
            )


def unfit_file_systems(machine: Machine) -> Iterator[Reason]:
    for found in machine.directories:
        facts = found.file_system
        if facts is None:
            continue
        if facts.kind in _IN_MEMORY:
            yield Reason(
                "disk_in_memory",
                Severity.ERR,
                f"{found.path} lies on {facts.kind}, in memory: nothing there outlives a restart",
                "name a directory on a local disk",
            )
        elif facts.kind in _REMOTE:
            yield Reason(
                "disk_remote",
                Severity.WARN,
                f"{found.path} lies on {facts.kind}, on another machine: all copies may fail with that one",
                "name a directory on a local disk",
            )
        if off := facts.options & _NO_BARRIERS:
            yield Reason(
                "disk_syncs_off",
                Severity.ERR,
                f"{facts.mount_point} is mounted with {', '.join(sorted(off))}: a sync does not reach the disk, and a "
                "power cut may lose what was acknowledged",
                "mount it without this option",
            )


def suspicious_syncs(machine: Machine) -> Iterator[Reason]:
    for found in machine.directories:
        if found.syncs is None or (found.file_system is not None and found.file_system.kind in _IN_MEMORY):
            continue
        median = found.syncs.median_s
        if median < IMPLAUSIBLE_SYNC_S:
            yield Reason(
                "disk_sync_implausible",
                Severity.WARN,
                f"a sync of 4 KiB in {found.path} takes {median * 1e6:.1f} µs (the median), less than "
                f"{IMPLAUSIBLE_SYNC_S * 1e6:.0f} µs: perhaps it does not reach a disk, and a power cut loses data",
                "look for a virtual disk with cache=unsafe, a controller without a battery, or eatmydata",
            )
        elif median > SLOW_SYNC_S:
            yield Reason(
                "disk_sync_slow",
                Severity.WARN,
                f"a sync of 4 KiB in {found.path} takes {median * 1e3:.0f} ms (the median; the slowest "
                f"{found.syncs.slowest_s * 1e3:.0f} ms), more than {SLOW_SYNC_S * 1e3:.0f} ms; each write waits for it",
                "use an SSD with a protected cache; see whether another process keeps the disk busy (`iostat -x`)",
            )
        if not found.syncs.direct:
            yield Reason(
                "disk_not_direct",
                Severity.WARN,
                f"O_DIRECT does not work in {found.path}: large reads and writes go through the page cache",
                "use ext4 or XFS",
            )


def little_room(machine: Machine) -> Iterator[Reason]:
    for found in machine.directories:
        facts = found.file_system
        if facts is None or not facts.capacity_bytes:
            continue
        used = 1 - facts.free_bytes / facts.capacity_bytes
        if facts.free_bytes < LITTLE_FREE_BYTES or used >= NEARLY_FULL_RATIO:
            yield Reason(
                "disk_nearly_full",
                Severity.WARN,
                f"the disk of {found.path} has {output.size(facts.free_bytes)} of "
                f"{output.size(facts.capacity_bytes)} free and is {used:.1%} full (the bounds are "
                f"{output.size(LITTLE_FREE_BYTES)} and {NEARLY_FULL_RATIO:.0%})",
                "free space on it, or take a larger one; docs/capacity.md",
            )


CHECKS: tuple[Callable[[Machine], Iterator[Reason]], ...] = (
    old_kernel,
    few_descriptors,
    suspended_machine,
    wrong_clock,
    missing_fuse,
    taken_ports,
    unusable_directories,
    missing_directories,
    open_directories,
    unfit_file_systems,
    suspicious_syncs,
    little_room,
)


def reasons(machine: Machine) -> list[Reason]:
    return [reason for check in CHECKS for reason in check(machine)]
