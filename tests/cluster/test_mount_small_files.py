"""What a small file costs through a mount, in calls to the metadata. Counts, so that one call more is noticed."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from threefs_client import connect_async
from threefs_mount.cache.delegation import CREATES_BEFORE_REQUEST

from tests.harness.cluster import LocalCluster
from tests.harness.mounts import Creates, Mount, need_mounts
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb

need_mounts()

_FILES = 60
#: Calls of the whole mount, and of nobody's file.
_OTHERS = ("RenewLease", "Statistics", "Delegate", "ReturnDelegation", "StatFs", "ReportAtime")
_PATIENCE_S = 60.0


def calls(address: str) -> Counter[str]:
    """What the meta service has done so far: names by method, the closes of a batch among them."""

    async def ask() -> Counter[str]:
        async with await connect_async(address) as fs:
            reply = await fs.context.meta.call(methods.STATISTICS, pb.StatisticsRequest(), timeout_s=10.0)
            return Counter({one.method: one.names for one in reply.calls if one.method not in _OTHERS})

    return asyncio.run(ask())


def counted(address: str, work: Callable[[], None], expected: int) -> Counter[str]:
    """What `work` has cost. Ends of write sessions come a little later: until as many have come as are expected."""
    before = calls(address)
    work()
    deadline = time.monotonic() + _PATIENCE_S
    while (found := calls(address) - before)["Batch"] + found["Close"] < expected and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def write_all(directory: Path, names: Sequence[str], creates: Creates) -> None:
    for name in names:
        creates.make(directory / name, name.encode() * 1000)


def test_the_cost_of_small_files(cluster: LocalCluster, tmp_path: Path) -> None:
    with Mount(cluster.address, tmp_path / "here") as here, Mount(cluster.address, tmp_path / "there") as there:
        directory = "cost-of-small-files"  # the cluster is shared with other tests
        (here / directory).mkdir()
        names, creates = [f"{number:04}" for number in range(_FILES)], Creates()
        cost = counted(cluster.address, lambda: write_all(here / directory, names, creates), _FILES)
        assert (cost["Create"], cost["Sync"]) == (_FILES, _FILES), "its name, and its length when it is closed"
        assert cost["Batch"] + cost["Close"] == _FILES, "the end of its write session, in the background"
        looks = cost["Lookup"] + cost["BatchStat"] + cost["Stat"]
        expected = _FILES // 2 + creates.pauses * 2 * CREATES_BEFORE_REQUEST
        assert looks < expected, "the mount knows which names are absent"
        assert cost.total() == 3 * _FILES + looks + cost["ListNames"] + cost["List"]

        read = {}
        cost = counted(
            cluster.address, lambda: read.update({name: (there / directory / name).read_bytes() for name in names}), 0
        )
        assert read == {name: name.encode() * 1000 for name in names}
        assert cost["Open"] == _FILES
        assert cost["Lookup"] + cost["BatchStat"] + cost["Stat"] <= _FILES + 2, "one look, or less with stat-ahead"
        assert not cost["Create"] + cost["Sync"] + cost["Close"] + cost["Batch"], "a read changes nothing"
