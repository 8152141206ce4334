"""Clients that count in one file, each under its lock: what one has counted the next one must see (I18).

Who sleeps for longer than its lease loses the lock, and must hear so. What it had sent is there when the next one has
the lock, or never.
"""

import asyncio
import contextlib
from dataclasses import dataclass

from threefs_client import AsyncFileSystem
from threefs_client.async_file import AsyncFile

from tests.harness.seeded_random import SeededRandom
from tests.harness.simulated.loop import Process
from tests.sim.giving_up import drawn_wait, given_up
from tests.sim.world import LEASE_S, World
from threefs.errors import Corrupt, CorruptChunk, Locked, LockLost, NoSpace, OutcomeUnknown, SessionLost, ThreefsError
from threefs.leases import RENEWALS_PER_LEASE, client_lease_s

_PATH = "/counter"
_DIGITS = 8
#: Clocks drift, and the last renewal may lie almost one interval before a client fell asleep.
_LEASE_S = client_lease_s(LEASE_S)
_LAPSE_S = (0.9 - 1 / RENEWALS_PER_LEASE) * _LEASE_S


class Lockers:
    """Begun once and stopped once."""

    def __init__(self, world: World, pause_s: float, cancels: float = 0.0) -> None:
        """`cancels` is the share of turns that are given up at some moment."""
        self.errors: list[str] = []
        self.counted = 0  # acknowledged
        self.lost = 0  # locks, by who slept for too long
        self._holder: _Hold | None = None
        self._unsure: _Hold | None = None  # who has begun to write, and has not heard that it is done
        self._made = False
        self._world = world
        self._pause_s = pause_s
        self._cancels = cancels
        self.given_up = 0
        self._stopping = False
        self._working: dict[str, None] = {}
        self._began: dict[str, float] = {}  # the newest turn of each

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
        self._began[host] = self._world.loop.time()
        try:
            await self._count(
                AsyncFileSystem(await self._world.client(host)), SeededRandom(self._world.seed, host), host
            )
        except ThreefsError as error:
            full = self._world.was_full_since(self._began[host]) and isinstance(error, NoSpace | OutcomeUnknown)
            if not full:
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
        process = self._world.processes[host]
        cancelled = SeededRandom(self._world.seed, "cancelled turns", host)
        while not self._stopping:
            slept_s = process.slept_s
            self._began[host] = self._world.loop.time()
            try:
                if self._cancels and cancelled.chance(self._cancels):
                    self.given_up += await given_up(self._turn(fs, host), drawn_wait(cancelled))
                else:
                    await self._turn(fs, host)
            except (LockLost, SessionLost):
                if process.slept_s - slept_s < _LAPSE_S:
                    raise
                self.lost += 1
            except (Corrupt, CorruptChunk):
                if not self._world.rotted:  # else the good copy may be at a member that is away
                    raise
            await asyncio.sleep(dice.uniform(0, 2 * self._pause_s))
        while self.lost:
            try:
                await self._look_again(fs, host)
                break
            except (Corrupt, CorruptChunk):
                if not self._world.rotted:
                    raise
                await asyncio.sleep(self._pause_s)

    async def _turn(self, fs: AsyncFileSystem, host: str) -> None:
        async with await fs.open(_PATH, "r+b") as file:
            with contextlib.suppress(Locked):
                await file.lock(wait_s=5.0)
                await self._one_more(file, host)

    async def _look_again(self, fs: AsyncFileSystem, host: str) -> None:
        """Whether anything has come late that was sent under a lock that is lost."""
        async with await fs.open(_PATH, "r+b") as file:
            await file.lock(wait_s=_LEASE_S)
            self._take(host)
            try:
                self._saw(host, int(await file.read()))
            finally:
                self._holder = None
            await file.unlock()

    async def _one_more(self, file: AsyncFile, host: str) -> None:
        hold = self._take(host)
        try:
            file.seek(0)
            seen = int(await file.read())
            if self._holder is hold:  # else it has slept, and knows nothing of now
                self._saw(host, seen)
                self._unsure = hold
            hold.makes = seen + 1
            self._world.held(host)
            file.seek(0)
            await file.write(str(seen + 1).zfill(_DIGITS).encode())
            await file.flush()
            if self._holder is hold:
                self.counted, self._unsure = seen + 1, None
            else:
                assert hold.was_seen is not False, f"I18: {host} has written {seen + 1} under a lock that it had lost"
        finally:
            if self._holder is hold:
                self._holder = None
        await file.unlock()

    def _take(self, host: str) -> "_Hold":
        other = self._holder
        assert other is None or self._has_slept(other), f"I18: {host} has the lock that {other} holds"
        self._holder = hold = _Hold(host, self._world.processes[host].slept_s)
        return hold

    def _saw(self, host: str, seen: int) -> None:
        """Under the lock. Of who has lost it, the last change may be there or not, and stays so."""
        unsure, self._unsure = self._unsure, None
        if unsure is not None and unsure.makes:
            unsure.was_seen = seen == unsure.makes
            self.counted = max(self.counted, seen) if unsure.was_seen else self.counted
        assert seen == self.counted, f"I18: {host} has read {seen} under the lock, {self.counted} were counted"

    def _has_slept(self, hold: "_Hold") -> bool:
        """For so long that its lease may have ended."""
        return self._world.processes[hold.host].asleep_s() - hold.slept_s >= _LAPSE_S


@dataclass(slots=True, eq=False)
class _Hold:
    """Of the lock, by one client."""

    host: str
    slept_s: float  # of its process, before
    makes: int = 0  # what it writes
    was_seen: bool | None = None  # by who had the lock next

    def __str__(self) -> str:
        return self.host
