"""Many processes rename, link and remove the same names through two clients and two mounts; then all is counted.

`make mix MINUTES=5` does it for long.
"""

import contextlib
import json
import os
import stat
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from threefs_client import AsyncFileSystem, connect_async
from threefs_fsck import check, replicas

from tests.harness.client_driver import ClientDriver, run
from tests.harness.cluster import LocalCluster
from tests.harness.fs_drivers import Found, KernelDriver, Tree
from tests.harness.mounts import Mount, lacking
from tests.harness.processes import ROOT, environment

SECONDS = "THREEFS_MIX_SECONDS"
LONG = SECONDS in os.environ
CHUNK_BYTES = 1 << 16
#: The kernel may answer for so long from what it knows, and so old may sums be.
CACHE_S = 1.0
_TRIES, _PAUSE_S = 600, 0.2
#: Calls that must succeed in a mix, and how often it may be mixed for that. Of a hundred random links hardly two do,
#: and on a busy machine there may be no more in a mix.
_DONE, _TURNS = ("rename", "link", "remove_file", "exchange"), 5


@pytest.fixture
def lonely(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path / "cluster", storage=2, replicas=2, targets_per_disk=2, lease_s=5.0) as running:
        yield running


@pytest.mark.timeout(36_000 if LONG else 300)
def test_counts_after_a_mix(lonely: LocalCluster, tmp_path: Path) -> None:
    fs = run(connect_async(lonely.address, timeout_s=60.0))
    try:
        run(fs.mkdir("/mix"))
        run(fs.set_layout("/mix", chunk_bytes=CHUNK_BYTES, stripe=2))
        run(fs.quotas.set("/mix"))
        with contextlib.ExitStack() as stack:
            points = [] if lacking() else [tmp_path / "mnt-1", tmp_path / "mnt-2"]
            mounts = [str(stack.enter_context(Mount(lonely.address, point)) / "mix") for point in points]
            mix([*[f"{lonely.address}/mix"] * 2, *mounts])
            time.sleep(CACHE_S)
            found = ClientDriver(fs, "/mix").tree()
            for mount in mounts:
                driver = KernelDriver(Path(mount))
                assert driver.tree() == found
                driver.leave()
        check_counts(fs, found)
        if LONG:
            wait_for_room(fs, found)
    finally:
        run(fs.close())


def mix(places: list[str]) -> None:
    done: Counter[str] = Counter()
    for turn in range(_TURNS):
        done.update(mix_once([*places, *places], turn))
        if all(done[f"{name} done"] for name in _DONE):
            return
    raise AssertionError(f"not each of {', '.join(_DONE)} has ever succeeded")


def mix_once(places: list[str], turn: int) -> Counter[str]:
    """What one process for each place has done."""
    seconds = os.environ.get(SECONDS, "10")
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.harness.namespace_mixer", place, str(seed), seconds],
            cwd=ROOT,
            env=environment(),
            stdout=subprocess.PIPE,
        )
        for seed, place in enumerate(places, turn * len(places))
    ]
    done: Counter[str] = Counter()
    outputs = [process.communicate()[0] for process in processes]
    assert all(process.returncode == 0 for process in processes), "see what they wrote above"
    for output in outputs:
        done.update(json.loads(output))
    print(f"{sum(done.values())} calls of {len(processes)} processes: {dict(sorted(done.items()))}")
    return done


def check_counts(fs: AsyncFileSystem, found: Tree) -> None:
    """Names, links, inodes, bytes and chunks, from what a walk has seen."""
    report = run(check(fs))
    assert report.complete and not report.findings, report.findings
    inodes: dict[str, list[str]] = {}
    for path, each in found.items():
        inodes.setdefault(each.same_as, []).append(path)
    for same_as, names in inodes.items():
        assert found[same_as].shown.nlink == links(found, same_as, names), names
    first = [found[path] for path in inodes]
    files = [each for each in first if stat.S_ISREG(each.shown.type)]
    wanted = len(first) + 1, sum(each.shown.size for each in files)  # with the top directory
    for _ in range(_TRIES):
        if used(fs) == wanted:
            break
        time.sleep(_PAUSE_S)
    assert used(fs) == wanted
    assert run(fs.statfs()).inodes >= len(first)
    assert right_number(run(chunks_used(fs, [f"/mix/{path}" for path in inodes])), files)


def used(fs: AsyncFileSystem) -> tuple[int, int]:
    quota = run(fs.quotas.show("/mix"))
    assert quota is not None
    return quota.used_inodes, quota.used_bytes


def links(found: Tree, path: str, names: list[str]) -> int:
    if not stat.S_ISDIR(found[path].shown.type):
        return len(names)
    assert len(names) == 1, "a directory has one name"
    below = [each for name, each in found.items() if os.path.dirname(name) == path]
    return 2 + sum(stat.S_ISDIR(each.shown.type) for each in below)


def right_number(chunks: int, files: list[Found]) -> bool:
    """No zero was written, so chunks of zeros are holes, or what was cut and made longer again."""
    parts = [
        file.content[start : start + CHUNK_BYTES] for file in files for start in range(0, file.shown.size, CHUNK_BYTES)
    ]
    return sum(any(part) for part in parts) <= chunks <= len(parts)


async def chunks_used(fs: AsyncFileSystem, paths: list[str] | None) -> int:
    """Chunks on the tails: of these files, or of all that there are."""
    wanted = None
    if paths is not None:
        wanted = {each.inode for each in await fs.stat_many(paths, follow=False) if each is not None}
    routing = fs.context.cluster.routing
    used = 0
    for chain in routing.chains.values():
        async for page in replicas.chunks(fs.context.peers, routing, chain):
            used += sum(wanted is None or chunk.inode in wanted for chunk in page)
    return used


def wait_for_room(fs: AsyncFileSystem, found: Tree) -> None:
    """What was removed is freed after a while: then there are no more inodes and chunks than names lead to."""
    first = {each.same_as: each for each in found.values()}
    files = [each for each in first.values() if stat.S_ISREG(each.shown.type)]
    for _ in range(_TRIES):
        inodes = run(check(fs)).inodes
        if inodes == len(first) + 2:
            break
        time.sleep(_PAUSE_S)
    assert inodes == len(first) + 2, "with the root and the top directory"
    assert right_number(run(chunks_used(fs, None)), files)
