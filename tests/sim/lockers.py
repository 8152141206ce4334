"""Clients that count in one file, each under its lock: what one has counted the next one must see (I18)."""

import asyncio
import contextlib

from threefs_client import AsyncFileSystem
from threefs_client.async_file import AsyncFile

from tests.sim.dice import SeededRandom
from tests.sim.loop import Process
from tests.sim.world import World
from threefs.errors import Locked, NoSpace, OutcomeUnknown, ThreefsError

_PATH = "/counter"
_DIGITS = 8


class Lockers:
    """Begun once and stopped once."""

    def __init__(self, world: World, pause_s: float) -> None:
        self.errors: list[str] = []
        self.counted = 0  # acknowledged
        self._holder = ""
        self._made = False
        self._world = world
        self._pause_s = pause_s
        self._stopping = False
        self._working: dict[str, None] = {}

    def begin(self) -> None:
        for host in self._world.locker_hosts:
            self._working[host] = None
            process = self._world.processes[host] = Process(self._world.loop, host, host)
            process.start(self._work(host))

    async def stop(self, limit_s: float) -> None:
        self._stopping = True
        try:
            async with asyncio.timeout(limit_s):
                while self._working:
                    await asyncio.sleep(0.05)
        except TimeoutError:
            self.errors.append(f"I13: {sorted(self._working)} still wait for the lock of {_PATH}")

    async def _work(self, host: str) -> None:
        try:
            await self._count(
                AsyncFileSystem(await self._world.client(host)), SeededRandom(self._world.seed, host), host
            )
        except ThreefsError as error:
            if not (self._world.was_full and isinstance(error, NoSpace | OutcomeUnknown)):
                self.errors.append(f"{host}: counting failed: {error!r}")
        except Exception as error:
            self.errors.append(f"{host} ended with {error!r}")
        finally:
            self._working.pop(host, None)

    async def _count(self, fs: AsyncFileSystem, dice: SeededRandom, host: str) -> None:
        if host == self._world.locker_hosts[0]:
            async with await fs.open(_PATH, "wb", chunk_bytes=64 << 10) as file:
                await file.write(b"0" * _DIGITS)
            self._made = True
        while not self._made and not self._stopping:
            await asyncio.sleep(0.1)
        while not self._stopping:
            async with await fs.open(_PATH, "r+b") as file:
                with contextlib.suppress(Locked):
                    await file.lock(wait_s=5.0)
                    await self._one_more(file, host)
            await asyncio.sleep(dice.uniform(0, 2 * self._pause_s))

    async def _one_more(self, file: AsyncFile, host: str) -> None:
        assert not self._holder, f"I18: {host} has the lock that {self._holder} holds"
        self._holder = host
        try:
            file.seek(0)
            seen = int(await file.read())
            assert seen == self.counted, f"I18: {host} has read {seen} under the lock, {self.counted} were counted"
            file.seek(0)
            await file.write(str(seen + 1).zfill(_DIGITS).encode())
            await file.flush()
            self.counted += 1
        finally:
            self._holder = ""
        await file.unlock()
