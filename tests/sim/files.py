"""Files of a simulation: each client has a directory of its own, and knows what must be in it."""

import asyncio

from threefs_client import AsyncFileSystem
from threefs_client.link import Link

from tests.sim.dice import SeededRandom
from tests.sim.loop import Process
from tests.sim.world import World
from tests.support.namespace_audit import audit
from threefs.errors import NoSpace, OutcomeUnknown, ThreefsError

_NAMES = 8


class Files:
    """One client, begun once and stopped once."""

    def __init__(self, world: World, host: str, pause_s: float, most_bytes: int) -> None:
        self.errors: list[str] = []
        self.operations = 0
        self._world = world
        self._host = host
        self._pause_s = pause_s
        self._most_bytes = most_bytes
        self._stopping = False
        self._ended = False
        self._known: dict[str, bytes] = {}
        self._dice = SeededRandom(world.seed, "files", host)

    def begin(self) -> None:
        process = self._world.processes[self._host] = Process(self._world.loop, self._host, self._host)
        process.start(self._work())

    async def stop(self, limit_s: float) -> None:
        self._stopping = True
        try:
            async with asyncio.timeout(limit_s):
                while not self._ended:
                    await asyncio.sleep(0.05)
        except TimeoutError:
            self.errors.append(f"I13: a file operation of {self._host} has not ended")

    async def _work(self) -> None:
        try:
            link = await self._world.client(self._host)
            await self._operate(link)
        except ThreefsError as error:
            if self._world.was_full and isinstance(error, NoSpace | OutcomeUnknown):
                return  # what it knows of its files is not certain any more
            self.errors.append(f"{self._host}: a file operation failed: {error!r}")
        except Exception as error:
            self.errors.append(f"{self._host} ended with {error!r}")
        finally:
            self._ended = True

    async def _operate(self, link: Link) -> None:
        fs = AsyncFileSystem(link)
        top = f"/{self._host}"
        await fs.mkdir(top)
        while not self._stopping:
            await self._step(fs, top)
            self.operations += 1
            await asyncio.sleep(self._dice.uniform(0, 2 * self._pause_s))
        names = sorted([entry.name async for entry in fs.list(top)])
        assert names == sorted(self._known), f"I9: {names} are there, {sorted(self._known)} should be"
        for name in names:
            await self._read(fs, f"{top}/{name}", self._known[name])

    async def _step(self, fs: AsyncFileSystem, top: str) -> None:
        known, dice = self._known, self._dice
        name = f"f{dice.below(_NAMES)}"
        kind = dice.below(5)
        if name not in known or kind == 0:
            content = dice.token(1 + dice.below(self._most_bytes))
            async with await fs.open(f"{top}/{name}", "wb", chunk_bytes=64 << 10) as file:
                await file.write(content)
            known[name] = content
        elif kind in (1, 2):
            await self._read(fs, f"{top}/{name}", known[name])
        elif kind == 3:
            other = f"f{dice.below(_NAMES)}"
            await fs.rename(f"{top}/{name}", f"{top}/{other}")
            known[other] = known.pop(name)
        else:
            await fs.unlink(f"{top}/{name}")
            del known[name]

    async def _read(self, fs: AsyncFileSystem, path: str, content: bytes) -> None:
        async with await fs.open(path, "rb") as file:
            found = await file.read()
        assert found == content, f"I11: {path} has {len(found)} bytes {found[:12]!r}, not {len(content)}"


async def namespace(world: World) -> list[str]:
    """I10, read from the store itself."""
    try:
        await audit(world.meta_kv)
    except AssertionError as error:
        return [f"I10: {error}"]
    return []
