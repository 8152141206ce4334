"""Files of a simulation: each client has a directory of its own, and knows what must be in it."""

import asyncio
from collections.abc import Iterable

from threefs_client import AsyncFileSystem
from threefs_client.context import ClientContext

from tests.harness.namespace_audit import audit
from tests.harness.seeded_random import SeededRandom
from tests.harness.simulated.loop import Process
from tests.sim.giving_up import drawn_wait, given_up
from tests.sim.world import World
from threefs.errors import Corrupt, CorruptChunk, NoSpace, NotFound, OutcomeUnknown, SessionLost, ThreefsError

_NAMES = 8
_CHUNK_BYTES = 64 << 10
_HOLES = [f"hole{n}" for n in range(8)]
_HOLE_BYTES = 3000


class Files:
    """One client, begun once and stopped once."""

    def __init__(
        self, world: World, host: str, pause_s: float, most_bytes: int, *, whole: bool = False, cancels: float = 0.0
    ) -> None:
        """With `whole`, half of the files are written whole, in one call. Not where metadata is restored: the number
        of such a file is known only when it has its name, and after a restore each number is looked up. `cancels` is
        the share of operations that are given up at some moment."""
        self.errors: list[str] = []
        self.operations = 0
        self._world = world
        self._host = host
        self._pause_s = pause_s
        self._most_bytes = most_bytes
        self._stopping = False
        self._ended = False
        self._began = 0.0  # the newest operation
        self._known: dict[str, bytes] = {}
        self._ever: dict[int, list[bytes]] = {}  # inode -> all that was ever to be written to it
        self._restores = 0  # of the metadata, that it has noticed
        self._forgiven = 0  # the restore after which it has lost what it had open
        self._tops: list[str] = []  # directories that it began with
        self._dice = SeededRandom(world.seed, "files", host)
        self._cancels = cancels
        self._cancel_dice = SeededRandom(world.seed, "cancelled files", host)
        self.given_up = 0
        self._changing: dict[str, list[bytes]] = {}  # names that are being changed -> what they may have then
        self._unsure: dict[str, list[bytes]] = {}  # the same of names whose change was given up: no longer used
        self._staying: list[tuple[str, ...]] = []  # names of which the change leaves at least one, whether made or not
        self._kept: list[tuple[str, ...]] = []  # the same of changes that were given up
        self._renewed: dict[int, int] = {}  # how often another name has taken the place of one of these
        self._whole = whole
        self._whole_dice = SeededRandom(world.seed, "whole files", host)

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
            if self._world.was_full_since(self._began) and isinstance(error, NoSpace | OutcomeUnknown):
                return  # what it knows of its files is not certain any more
            self.errors.append(f"{self._host}: a file operation failed: {error!r}")
        except Exception as error:
            self.errors.append(f"{self._host} ended with {error!r}")
        finally:
            self._ended = True

    async def _operate(self, link: ClientContext) -> None:
        fs = AsyncFileSystem(link)
        top = await self._begin_anew(fs)
        while not self._stopping:
            self._began = self._world.loop.time()
            try:
                if not self._known:
                    await self._make_holes(fs, top)
                await self._step_or_give_up(fs, top)
            except (ThreefsError, AssertionError) as error:
                if not self._comes_of_a_restore(error):
                    raise
                self._restores = -1
            if self._world.restores != self._restores:  # what was since the backup is forgotten
                top = await self._begin_anew(fs)
            self.operations += 1
            await asyncio.sleep(self._dice.uniform(0, 2 * self._pause_s))
        names = sorted([entry.name async for entry in fs.list(top)])
        sure = [name for name in names if name not in self._unsure]
        assert sure == sorted(self._known), f"I9: {names} are there, {sorted(self._known)} should be"
        for name in sure:
            await self._read(fs, f"{top}/{name}", self._known[name])
        for one_of in self._kept:
            assert set(one_of) & set(names), f"I9: {names} are there, and one of {one_of} should be"
        for name in (name for name in names if name in self._unsure):
            await self._look_at_unsure(fs, f"{top}/{name}", self._unsure[name])
        for old in self._tops[:-1]:
            await self._look_at_old(fs, old)

    def _comes_of_a_restore(self, error: Exception) -> bool:
        """The backup may also lack the lease of this process: then it loses what it had open, once."""
        if self._world.restores != self._restores:
            return True
        forgiven, self._forgiven = self._forgiven, self._restores
        return isinstance(error, SessionLost) and forgiven != self._restores

    async def _begin_anew(self, fs: AsyncFileSystem) -> str:
        """A directory of which everything is known. Those of before a restore hold what is left of them."""
        while True:
            restores, self._known, self._unsure, self._kept = self._world.restores, {}, {}, []
            top = f"/{self._host}-{len(self._tops)}" if self._tops else f"/{self._host}"
            try:
                await fs.mkdir(top)
            except ThreefsError:
                if self._world.restores == restores:
                    raise
            self._tops.append(top)
            self._restores = restores
            return top

    async def _make_holes(self, fs: AsyncFileSystem, top: str) -> None:
        """Nothing is ever written to them: with the number of an older file they would show its bytes."""
        for name in _HOLES if self._restores > 0 else ():
            async with await fs.open(f"{top}/{name}", "wb", chunk_bytes=_CHUNK_BYTES) as file:
                await file.truncate(_HOLE_BYTES)
            self._known[name] = bytes(_HOLE_BYTES)

    async def _look_at_old(self, fs: AsyncFileSystem, top: str) -> None:
        """After a restore a file may have bytes of before or of after the backup, or zeros: never those of another."""
        try:
            names = [entry.name async for entry in fs.list(top)]
        except NotFound:
            return
        for name in names:
            async with await fs.open(f"{top}/{name}", "rb") as file:
                found = await file.read()
                ever = self._ever.get(int(file.handle.inode), [])
            _check_pieces("I15", f"{top}/{name}", found, ever)

    async def _look_at_unsure(self, fs: AsyncFileSystem, path: str, contents: list[bytes]) -> None:
        """A change that was given up may have been made, in part or not at all."""
        async with await fs.open(path, "rb") as file:
            _check_pieces("I11", path, await file.read(), contents)

    async def _step_or_give_up(self, fs: AsyncFileSystem, top: str) -> None:
        if not (self._cancels and self._cancel_dice.chance(self._cancels)):
            await self._step(fs, top)
            return
        self._changing = {}
        self.given_up += await given_up(self._step(fs, top), drawn_wait(self._cancel_dice))
        for name, contents in self._changing.items():
            self._known.pop(name, None)
            self._unsure[name] = contents
            number = int(name[1:].split("-")[0])
            self._renewed[number] = self._renewed.get(number, 0) + 1
        self._kept += self._staying if self._changing else []
        self._changing = {}

    def _name(self, number: int) -> str:
        renewed = self._renewed.get(number, 0)
        return f"f{number}-{renewed}" if renewed else f"f{number}"

    def _change(self, names: Iterable[str], *contents: bytes, gone: str = "") -> None:
        """These are about to change, and may have that content or what any of them has now. `gone` is a name that the
        change removes; the others stay, if they are there."""
        changing = dict.fromkeys(names)
        now = [self._known[name] for name in changing if name in self._known]
        self._changing = {name: [*now, *contents] for name in changing}
        self._staying = [(name,) for name in changing if name in self._known and name != gone]

    async def _step(self, fs: AsyncFileSystem, top: str) -> None:
        known, dice = self._known, self._dice
        name = self._name(dice.below(_NAMES))
        kind = dice.below(5)
        if name not in known or kind == 0:
            content = dice.token(1 + dice.below(self._most_bytes))
            if self._whole and self._whole_dice.chance(0.5):
                await self._write_whole(fs, top, name, content)
                return
            self._change([name], content)
            async with await fs.open(f"{top}/{name}", "wb", chunk_bytes=_CHUNK_BYTES) as file:
                self._ever.setdefault(int(file.handle.inode), []).append(content)
                await file.write(content)
            known[name] = content
        elif kind in (1, 2):
            try:
                await self._read(fs, f"{top}/{name}", known[name])
            except (Corrupt, CorruptChunk):
                if not self._world.rotted:  # else the good copy may be at a member that is away
                    raise
        elif kind == 3:
            other = self._name(dice.below(_NAMES))
            self._change([name, other], gone=name)
            self._staying.append((name, other))
            await fs.rename(f"{top}/{name}", f"{top}/{other}")
            known[other] = known.pop(name)
        else:
            self._change([name], gone=name)
            await fs.unlink(f"{top}/{name}")
            del known[name]
        self._changing = {}

    async def _write_whole(self, fs: AsyncFileSystem, top: str, name: str, content: bytes) -> None:
        """By itself, or together with a new one that takes the name of another file."""
        other = self._name(self._whole_dice.below(_NAMES))
        replace = self._whole_dice.chance(0.5)
        alone = other == name or self._whole_dice.chance(0.5)
        self._change([name] if alone else [name, other], content)
        if alone:
            await fs.write_file(f"{top}/{name}", content, replace=replace)
        else:
            for error in await fs.write_many(((f"{top}/{each}", content) for each in (name, other)), replace=replace):
                if error is not None:
                    raise error
            self._known[other] = content
        self._known[name] = content
        self._changing = {}

    async def _read(self, fs: AsyncFileSystem, path: str, content: bytes) -> None:
        async with await fs.open(path, "rb") as file:
            found = await file.read()
        assert found == content, f"I11: {path} has {len(found)} bytes {found[:12]!r}, not {len(content)}"


def _check_pieces(rule: str, path: str, found: bytes, contents: Iterable[bytes]) -> None:
    """Each chunk has zeros, or what one of these contents has there."""
    for at in range(0, len(found), _CHUNK_BYTES):
        piece = found[at : at + _CHUNK_BYTES]
        known = not any(piece) or any(_is_of(piece, content[at : at + _CHUNK_BYTES]) for content in contents)
        assert known, f"{rule}: {path} has {piece[:12]!r} at {at}: that was never written to it"


def _is_of(piece: bytes, content: bytes) -> bool:
    """Whether the piece is that content, or as much of it as is left."""
    return piece.rstrip(b"\0") == content[: len(piece)].rstrip(b"\0")


async def namespace(world: World) -> list[str]:
    """I10, read from the store itself."""
    try:
        await audit(world.metadata())
    except AssertionError as error:
        return [f"I10: {error}"]
    return []
