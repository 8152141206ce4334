"""What goes wrong in a chaos run: drawn from a seed, one after the other, a minority at a time."""

import asyncio
import random
import signal
from collections.abc import Callable
from pathlib import Path

from tests.chaos.cluster import LEASE_S, Cluster

KINDS = ("kill", "kill", "kill", "stop", "stop", "oneway", "cutoff", "restart", "slow", "full", "everything")


class Faults:
    def __init__(self, cluster: Cluster, seed: int, tell: Callable[[str], None]) -> None:
        self.counts: dict[str, int] = {}
        self.now = ""  # what is wrong at this moment
        self._cluster = cluster
        self._dice = random.Random(seed)
        self._tell = tell

    async def run(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            await asyncio.sleep(self._dice.uniform(0.5, 2.0))
            await self.strike(self._dice.choice(KINDS))
            self.now = ""
            wrong = await self._cluster.healthy(30.0)  # so that a minority is ill at a time
            if wrong:
                self._tell(f"not well 30 s after the fault: {wrong}")

    async def strike(self, kind: str) -> None:
        cluster, dice = self._cluster, self._dice
        storage = dice.choice(cluster.storage)
        anyone = dice.choice([*cluster.storage, "meta", "manager"])
        if kind in ("oneway", "cutoff") and cluster.network is None:
            return
        if kind == "full" and not cluster.mounted:
            return
        victim = {"kill": anyone, "restart": anyone, "stop": anyone, "everything": "", "full": ""}.get(kind, storage)
        self.now = kind
        self.counts[kind] = self.counts.get(kind, 0) + 1
        lasts = dice.uniform(0.1, 2.0 * LEASE_S)
        self._tell(f"{kind} {victim} {lasts:.1f} s")
        await getattr(self, f"_{kind}")(victim, lasts)

    async def _kill(self, name: str, lasts: float) -> None:
        self._cluster.kill(name)
        # The manager is alone here, and without it leases end: its supervisor is quick.
        await asyncio.sleep(min(lasts, 0.2) if name == "manager" else lasts)
        self._cluster.launch(name)

    async def _restart(self, name: str, lasts: float) -> None:
        self._cluster.signal(name, signal.SIGTERM)
        for _ in range(600):
            if not self._cluster.alive(name):
                break
            await asyncio.sleep(0.05)
        self._cluster.launch(name)

    async def _stop(self, name: str, lasts: float) -> None:
        self._cluster.signal(name, signal.SIGSTOP)
        await asyncio.sleep(lasts)
        self._cluster.signal(name, signal.SIGCONT)

    async def _slow(self, name: str, lasts: float) -> None:
        """Its processor and its disk: it runs a fifth of the time."""
        end = asyncio.get_running_loop().time() + lasts
        while asyncio.get_running_loop().time() < end:
            self._cluster.signal(name, signal.SIGSTOP)
            await asyncio.sleep(0.08)
            self._cluster.signal(name, signal.SIGCONT)
            await asyncio.sleep(0.02)

    async def _oneway(self, name: str, lasts: float) -> None:
        network = self._cluster.network
        assert network is not None
        others = [network.gateway, *(a for other, a in network.addresses.items() if other != name)]
        to = self._dice.choice(others)
        network.block(name, to)
        await asyncio.sleep(lasts)
        network.unblock(name, to)

    async def _cutoff(self, name: str, lasts: float) -> None:
        network = self._cluster.network
        assert network is not None
        network.unplug(name)
        await asyncio.sleep(lasts)
        network.plug(name)

    async def _full(self, _: str, lasts: float) -> None:
        filler = self._cluster.mounted[0] / "filler"
        await asyncio.to_thread(_fill, filler)
        await asyncio.sleep(lasts)
        filler.unlink()

    async def _everything(self, _: str, lasts: float) -> None:
        for name in self._cluster.programs:
            self._cluster.kill(name)
        await asyncio.sleep(0.2)
        for name in ("manager", *self._cluster.storage, "meta"):
            self._cluster.launch(name)


def _fill(file: Path) -> None:
    with file.open("wb", buffering=0) as out:
        try:
            while True:
                out.write(bytes(1 << 20))
        except OSError:
            pass
