"""The gain of each cache mechanism of the mount: mounts of one cluster, each with one mechanism replaced by none.

    python benchmarks/mount_ablation.py --rounds 3 --json ablation.json

For each mechanism there is a mount without it (this program mounts it and changes the class in its own process) beside
one with everything. In each round both do the workload that suits the mechanism best, and the steps of
`threefs_bench.mount`; which of the two is first alternates, so that both see the same machine. It prints a Markdown
table of medians. Needs /dev/fuse, and a machine that does nothing else.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop
from threefs_bench import mount as bench
from threefs_cli.cluster_file import Plan
from threefs_cli.local_cluster import LocalCluster
from threefs_mount import mount_process, mountpoints
from threefs_mount.cache import statahead
from threefs_mount.cache.delegation import DirectoryDelegations
from threefs_mount.cache.directory_attrs import DirectoryAttrCache
from threefs_mount.cache.kernel_attrs import KernelAttrCache
from threefs_mount.cache.listing_cache import ListingCache
from threefs_mount.cache.readdirplus_policy import ReaddirplusPolicy
from threefs_mount.cache.statahead import PrefetchRequest, StatAhead
from threefs_mount.options import MountOptions

from threefs.env.clock import CLOCK

ALL = "all"  # the mount without a change
_EXPIRY_S = 1.2  # more than `--cache`, so that nothing is answered by the kernel alone
_MOUNT_S = 60.0
_SMALL = 100  # names of a directory whose attributes may come with its listing
_PROGRAMS = 16

#: It works in a directory of its own, of that many files; how many operations it did, and in how many seconds.
Workload = Callable[[Path, int], tuple[int, float]]


# ---- workloads ----


def _timed(work: Callable[[], int]) -> tuple[int, float]:
    begin_s = CLOCK.monotonic()
    count = work()
    return count, CLOCK.monotonic() - begin_s


def _fill(place: Path, names: Sequence[str]) -> list[Path]:
    place.mkdir(parents=True)
    made = [place / name for name in names]
    for path in made:
        bench._create(str(path))
    return made


def _make(place: Path, names: Sequence[str]) -> list[Path]:
    """And wait until the kernel has to ask about them."""
    made = _fill(place, names)
    bench._pause(_EXPIRY_S)
    return made


def _numbered(count: int) -> list[str]:
    return [f"{number:06}" for number in range(count)]


def create(place: Path, files: int) -> tuple[int, float]:
    """Files made one after the other in one directory."""
    place.mkdir(parents=True)
    names = _numbered(files)

    def work() -> int:
        for name in names:
            bench._create(str(place / name))
        return files

    return _timed(work)


def make_and_remove(place: Path, files: int) -> tuple[int, float]:
    """Each file is removed again before the next one is made: after each change the kernel asks for the directory."""
    place.mkdir(parents=True)

    def work() -> int:
        for name in _numbered(files):
            bench._create(str(place / name))
            os.unlink(place / name)
        return 2 * files

    return _timed(work)


def list_small_directories(place: Path, files: int) -> tuple[int, float]:
    """Names of small directories, by a program that never looks at their entries."""
    directories = [place / name for name in _numbered(max(20, files // _SMALL))]
    for directory in directories:
        _fill(directory, _numbered(_SMALL))
    bench._pause(_EXPIRY_S)
    return _timed(lambda: sum(len(os.listdir(directory)) for directory in directories))


def list_again(place: Path, files: int) -> tuple[int, float]:
    """The names of one large directory, again and again."""
    _make(place, _numbered(files))
    os.listdir(place)
    return _timed(lambda: sum(len(os.listdir(place)) for _ in range(20)))


def stat_in_order(place: Path, files: int) -> tuple[int, float]:
    """The attributes of every file of a directory, one after the other."""
    made = _make(place, _numbered(files))
    return _timed(lambda: len([os.stat(path) for path in made]))


def stat_at_random(place: Path, files: int) -> tuple[int, float]:
    """The attributes of one in sixteen files of a directory, in no order: most of a page is fetched for nothing."""
    made = _make(place, _numbered(files))
    chosen = random.Random(7).sample(made, max(16, files // 16))
    return _timed(lambda: len([os.stat(path) for path in chosen]))


def list_with_xattrs(place: Path, files: int) -> tuple[int, float]:
    """The calls of `ls -l`: names, attributes, and an ACL of each file."""
    _make(place, _numbered(files))

    def work() -> int:
        with os.scandir(place) as entries:
            for entry in entries:
                entry.stat()
                with contextlib.suppress(OSError):
                    os.getxattr(entry.path, "system.posix_acl_access")
        return files

    return _timed(work)


# ---- mechanisms, and what takes them away ----


def _put(owner: Any, name: str, replacement: Any) -> None:
    setattr(owner, name, replacement)


def _no_readdirplus_policy() -> None:
    """Attributes come with every listing of a small directory."""
    _put(ReaddirplusPolicy, "wants_attributes", lambda self, program: True)


def _no_statahead() -> None:
    _put(StatAhead, "_request", lambda self, *place: None)


def _no_economics() -> None:
    """Each page that is fetched ahead is as large as it may be."""

    def request(self: StatAhead, state: Any, directory: int, after: bytes, now_s: float) -> None:
        if state.request is None:
            generation = self.invalidations.generation
            state.request = PrefetchRequest(directory, after, statahead._MAX_NAMES, now_s, generation)
            self._start_fetch(state.request)

    _put(StatAhead, "_request", request)


def _no_listing_cache() -> None:
    revalidate = ListingCache._revalidate

    async def afresh(self: ListingCache, number: int, state: Any, program: int | None) -> Any:
        self._drop(state)
        return await revalidate(self, number, state, program)

    async def nothing(self: ListingCache, number: int) -> None:
        return None

    _put(ListingCache, "_revalidate", afresh)
    _put(ListingCache, "prefetch", nothing)


def _no_kernel_attrs() -> None:
    """But for the count of moves, which decides whether a name still stands for its file."""
    _put(KernelAttrCache, "lacks_xattr", lambda self, inode, name, now_s: False)
    _put(KernelAttrCache, "differs", lambda self, inode: True)


def _no_directory_attrs() -> None:
    _put(DirectoryAttrCache, "get", lambda self, inode, now_s: None)


def _no_delegations() -> None:
    _put(DirectoryDelegations, "record_negative_lookup", lambda self, directory, now_s: None)


@dataclass(frozen=True, slots=True)
class Mechanism:
    take_away: Callable[[], None]
    workload: Workload


MECHANISMS = {
    "readdirplus policy": Mechanism(_no_readdirplus_policy, list_small_directories),
    "statahead": Mechanism(_no_statahead, stat_in_order),
    "statahead budget and rate": Mechanism(_no_economics, stat_at_random),
    "listing cache": Mechanism(_no_listing_cache, list_again),
    "kernel attributes": Mechanism(_no_kernel_attrs, list_with_xattrs),
    "directory attributes": Mechanism(_no_directory_attrs, make_and_remove),
    "delegations": Mechanism(_no_delegations, create),
}


# ---- mounts ----


def serve(without: str, address: str, point: str) -> None:
    """In a process of its own."""
    if without != ALL:
        MECHANISMS[without].take_away()
    options = MountOptions(allow_other=os.geteuid() == 0)
    uvloop.run(mount_process.serve(address, point, options, lambda: print("ready", flush=True)))


@contextlib.contextmanager
def mounted(address: str, point: Path, without: str) -> Iterator[Path]:
    point.mkdir()
    command = [sys.executable, __file__, "--serve", without, address, str(point)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise OSError(f"the mount without {without!r} did not start: exit status {process.wait(_MOUNT_S)}")
        yield point
    finally:
        if process.poll() is None:
            mountpoints.unmount(str(point))
            process.wait(_MOUNT_S)


@contextlib.contextmanager
def cluster(place: Path) -> Iterator[str]:
    local = LocalCluster(place / "cluster")
    started = uvloop.run(local.up(Plan(storage=3, replicas=3)))
    try:
        yield started.address
    finally:
        uvloop.run(local.down())


# ---- rounds ----

#: mechanism -> what was measured -> rates with it, rates without it, one of each round.
Rates = dict[str, dict[str, tuple[list[float], list[float]]]]


def measure(names: Sequence[str], rounds: int, files: int, steps: bool, scratch: Path | None) -> Rates:
    found: Rates = {name: {} for name in names}
    with tempfile.TemporaryDirectory(prefix="threefs-ablation-", dir=scratch) as top, contextlib.ExitStack() as stack:
        address = stack.enter_context(cluster(Path(top)))
        whole = stack.enter_context(mounted(address, Path(top) / "all", ALL))
        for name in names:
            with mounted(address, Path(top) / name.replace(" ", "-"), name) as without:
                for number in range(rounds):
                    both = [(0, whole), (1, without)]
                    for column, point in both if number % 2 else reversed(both):
                        print(f"{name}: round {number + 1}, {'without' if column else 'with'} it", file=sys.stderr)
                        for what, rate in _rates(MECHANISMS[name], point, number, files, steps):
                            found[name].setdefault(what, ([], []))[column].append(rate)
    return found


def _rates(mechanism: Mechanism, point: Path, number: int, files: int, steps: bool) -> Iterator[tuple[str, float]]:
    place = point / f"{mechanism.workload.__name__}-{number}-{point.name}"
    count, seconds = mechanism.workload(place, files)
    yield mechanism.workload.__name__.replace("_", " "), count / seconds
    if steps:
        for row in bench.measure(point, files=files, processes=(1,), apart=(_PROGRAMS,)):
            yield row.name, row.per_s


def as_markdown(found: Rates) -> str:
    lines = ["| mechanism | workload | with it, per s | without it, per s | gain |", "|---|---|---:|---:|---:|"]
    for name, rows in found.items():
        for number, (what, (whole, without)) in enumerate(rows.items()):
            on, off = statistics.median(whole), statistics.median(without)
            row = f"| {name if not number else ''} | {what} | {on:,.0f} | {off:,.0f} | {on / off - 1:+.0%} |"
            lines.append(row)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--only", default=",".join(MECHANISMS), help="names of mechanisms, with commas between")
    parser.add_argument("--no-steps", action="store_true", help="the best workload of each mechanism alone")
    parser.add_argument("--scratch", type=Path, help="where cluster and mounts are kept for the time")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", nargs=3, metavar=("WITHOUT", "ADDRESS", "POINT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(*options.serve)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # unmounts, and ends the cluster
    names = options.only.split(",")
    unknown = [name for name in names if name not in MECHANISMS]
    if unknown:
        parser.error(f"there is no mechanism {unknown[0]!r}; there are {', '.join(MECHANISMS)}")
    found = measure(names, options.rounds, options.files, not options.no_steps, options.scratch)
    print(as_markdown(found))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
