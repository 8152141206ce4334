"""Every reason is produced here; the page docs/health.md names each."""

import ast
import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from threefs_cli import machine_health
from threefs_cli.machine_health import DirectoryFacts, Machine

from threefs.env.machine import ClockFacts, FileSystemFacts, SyncFacts
from threefs.health import verdict
from threefs.health.verdict import Severity

GIB = 1 << 30
WARN, ERR = Severity.WARN, Severity.ERR
PAGE = Path(__file__).resolve().parents[4] / "docs" / "health.md"

DISK = FileSystemFacts("xfs", "/srv", frozenset({"rw", "noatime"}), 100 * GIB, 60 * GIB)
SYNCS = SyncFacts(median_s=40e-6, slowest_s=300e-6, direct=True)
DIRECTORY = DirectoryFacts(
    "/srv/d", "/srv/d", is_directory=True, writable=True, mode=0o700, file_system=DISK, syncs=SYNCS
)
FIT = Machine(
    kernel=(6, 1),
    descriptors=1 << 20,
    clock=ClockFacts(suspended_s=0.0, in_step=True),
    fuse_device=True,
    fuse_helper=True,
    directories=[DIRECTORY],
)


def machine(**changed: Any) -> Machine:
    return dataclasses.replace(FIT, **changed)


def directory(**changed: Any) -> Machine:
    return machine(directories=[dataclasses.replace(DIRECTORY, **changed)])


def disk(**changed: Any) -> Machine:
    return directory(file_system=dataclasses.replace(DISK, **changed))


def syncs(**changed: Any) -> Machine:
    return directory(syncs=dataclasses.replace(SYNCS, **changed))


def test_a_fit_machine_has_no_reason() -> None:
    assert machine_health.reasons(FIT) == []
    assert machine_health.reasons(machine(descriptors=None, directories=[])) == []
    assert machine_health.reasons(machine(clock=ClockFacts(0.5, None))) == []  # it cannot be asked


@pytest.mark.parametrize(
    ("found", "code", "severity", "words"),
    [
        (machine(kernel=(4, 19)), "kernel_old", ERR, "the system is Linux 4.19; Linux 5.4 is the oldest"),
        (machine(kernel=None), "kernel_old", ERR, "not Linux"),
        (machine(descriptors=20_000), "few_descriptors", WARN, "may open 20,000 files"),
        (machine(descriptors=1_000), "few_descriptors", ERR, "less than 65,536"),
        (machine(clock=ClockFacts(33.0, True)), "machine_suspends", WARN, "suspended for 33 s"),
        (machine(clock=ClockFacts(0.0, False)), "clock_not_synchronised", WARN, "nothing keeps the wall clock right"),
        (machine(fuse_device=False), "no_fuse_device", WARN, "/dev/fuse cannot be opened"),
        (machine(fuse_helper=False), "no_fuse_helper", WARN, "only root can mount"),
        (
            machine(refused_ports=[("10.0.0.1:7021", "Address already in use")]),
            "port_refused",
            ERR,
            "no service can listen at 10.0.0.1:7021: Address already in use",
        ),
        (directory(is_directory=False), "directory_unusable", ERR, "/srv/d is not a directory"),
        (directory(writable=False), "directory_unusable", ERR, "this user may not write in /srv/d"),
        (directory(failure="Read-only file system"), "directory_unusable", ERR, "Read-only file system"),
        (directory(existing="/srv"), "directory_missing", WARN, "would make it on the disk of /srv"),
        (directory(mode=0o755), "directory_open", WARN, "/srv/d has mode 0755"),
        (disk(kind="tmpfs"), "disk_in_memory", ERR, "lies on tmpfs, in memory"),
        (disk(kind="nfs4"), "disk_remote", WARN, "lies on nfs4, on another machine"),
        (disk(options=frozenset({"rw", "nobarrier"})), "disk_syncs_off", ERR, "/srv is mounted with nobarrier"),
        (syncs(median_s=1e-6), "disk_sync_implausible", WARN, "takes 1.0 µs (the median), less than 5 µs"),
        (syncs(median_s=0.05, slowest_s=0.4), "disk_sync_slow", WARN, "takes 50 ms (the median; the slowest 400 ms)"),
        (syncs(direct=False), "disk_not_direct", WARN, "O_DIRECT does not work in /srv/d"),
        (disk(free_bytes=14 * GIB), "disk_nearly_full", WARN, "has 14.0 GiB of 100.0 GiB free and is 86.0% full"),
        (disk(free_bytes=GIB, capacity_bytes=2 * GIB), "disk_nearly_full", WARN, "the bounds are 2.0 GiB and 85%"),
    ],
)
def test_each_reason_says_what_is_so(found: Machine, code: str, severity: Severity, words: str) -> None:
    (reason,) = machine_health.reasons(found)
    assert (reason.code, reason.severity) == (code, severity)
    assert words in reason.summary and reason.advice
    assert verdict.severity([reason]) is severity


def test_the_mode_of_an_ancestor_does_not_count() -> None:
    found = machine_health.reasons(directory(existing="/srv", mode=0o755))
    assert [reason.code for reason in found] == ["directory_missing"]


def test_the_mode_of_a_file_does_not_count() -> None:
    """`chmod 0700 /etc/passwd` would be bad advice."""
    found = machine_health.reasons(
        directory(path="/etc/passwd", existing="/etc/passwd", is_directory=False, mode=0o644)
    )
    assert [reason.code for reason in found] == ["directory_unusable"]


def test_syncs_in_memory_are_no_second_reason() -> None:
    found = directory(file_system=dataclasses.replace(DISK, kind="tmpfs"), syncs=SyncFacts(1e-7, 1e-6, direct=False))
    assert [reason.code for reason in machine_health.reasons(found)] == ["disk_in_memory"]


def codes() -> set[str]:
    """Of the module, read from its source."""
    calls = (node for node in ast.walk(ast.parse(inspect.getsource(machine_health))) if isinstance(node, ast.Call))
    return {
        str(call.args[0].value)
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == "Reason" and isinstance(call.args[0], ast.Constant)
    }


def test_each_reason_is_produced_here_and_explained_on_its_page() -> None:
    here = Path(__file__).read_text(encoding="utf-8")
    assert len(codes()) > 10
    assert {code for code in codes() if f'"{code}"' not in here} == set()
    assert codes() <= set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
