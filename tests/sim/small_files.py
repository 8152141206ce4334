"""A cluster in which one client writes whole files, as it is counted and cut off by `test_small_files.py`."""

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from threefs_client import AsyncFileSystem
from threefs_meta.store import keys

from tests.harness.simulated.loop import Process
from tests.sim import audit
from tests.sim.world import Size, World
from threefs.ids import ChunkId
from threefs.kv.transaction import BufferedTransaction
from threefs.rpc.call_durations import CallDurations
from threefs.rpc.methods import Method

#: As it is by default: small content lies in the record store, without a block.
_SIZE = Size(storage=3, targets_per_disk=1, clients=2, deferred_bytes=64 << 10, inline_bytes=16 << 10)
_LIMIT_S = 300.0


class Counts:
    """What has happened in the cluster since `begin`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._before: Counter[str] = Counter()
        self._commits = 0
        self._syncs: Counter[str] = Counter()
        apply = world.meta_kv._apply

        def counted(attempt: BufferedTransaction) -> None:
            # Ticks, and renewals of leases, are not of any file.
            self._commits += any(key.startswith((b"INOD|", b"DENT|", b"SESS|")) for key in attempt.writes)
            apply(attempt)

        world.meta_kv._apply = counted  # type: ignore[method-assign]
        for host, disk in world.disks.items():
            self._count_syncs(host, disk)

    def _count_syncs(self, host: str, disk: Any) -> None:
        do = disk.do

        async def counted(effect: Any, *, kind: str, **more: Any) -> Any:
            self._syncs[host] += kind == "sync"
            return await do(effect, kind=kind, **more)

        disk.do = counted

    def begin(self) -> None:
        self._before, self._commits = self._all_calls(), 0
        self._syncs.clear()

    def _all_calls(self) -> Counter[str]:
        [node] = self._world.metas.values()
        return Counter({name: calls.calls for name, calls in node._context.statistics.calls.items()})

    @property
    def calls(self) -> dict[str, int]:
        """Calls that the meta service has answered, except renewals of leases."""
        found = self._all_calls() - self._before
        return {name: count for name, count in found.items() if name != "RenewLease"}

    @property
    def commits(self) -> int:
        """Transactions that have changed inodes, names or write sessions."""
        return self._commits

    @property
    def syncs(self) -> dict[str, int]:
        """By storage process."""
        return dict(self._syncs)


class SentCalls(CallDurations):
    """Calls of a client to services since the last `begin_again`, by method, except those that it makes for itself."""

    def __init__(self, fs: AsyncFileSystem) -> None:
        super().__init__(fs.context.clock)
        self.counts: Counter[str] = Counter()
        fs.context.peers.observe_calls(self)

    def begin(self, method: Method[Any, Any], future: "asyncio.Future[Any]") -> None:
        if method.name not in ("GetRouting", "RenewLease"):
            self.counts[method.name] += 1
        super().begin(method, future)

    def begin_again(self) -> None:
        self.counts.clear()


def play(scene: Callable[[World], Awaitable[None]], seed: object = 1) -> None:
    """Run the scene in a cluster of three storage processes, in virtual time."""
    directory = Path(tempfile.mkdtemp(prefix="threefs-small-"))
    world = World(seed, _SIZE, directory)

    async def whole() -> None:
        await world.begin()
        await scene(world)

    try:
        world.loop.run(whole(), limit_s=_LIMIT_S)
        assert not world.deaths and not world.loop.failures, (world.deaths, world.loop.failures)
    finally:
        world.loop.discard()
        shutil.rmtree(directory, ignore_errors=True)


def client(
    world: World, host: str, work: Callable[[AsyncFileSystem], Awaitable[None]]
) -> tuple[Process, "asyncio.Task[None]"]:
    """Starts a client process, and its work."""
    process = world.processes[host] = Process(world.loop, host, host)
    return process, process.start(_work(world, host, work))


async def _work(world: World, host: str, work: Callable[[AsyncFileSystem], Awaitable[None]]) -> None:
    await work(AsyncFileSystem(await world.client(host)))


def chunks(world: World) -> set[ChunkId]:
    """All that have content, anywhere."""
    return {
        chunk
        for node in world.storages.values()
        for target in node.targets
        for chunk, (_, removed, *_) in audit.contents(world, target).items()
        if not removed
    }


def inodes(world: World) -> set[int]:
    return {keys.inode_of(key) for key in world.metadata().pairs() if key.startswith(b"INOD|")}
