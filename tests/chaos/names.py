"""Names that clients and mounts change at the same time: the load whose history `name_history` judges."""

import asyncio
import errno
import os
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import threefs_client
from threefs_client import AsyncFileSystem

from tests.chaos.cluster import KEY
from tests.harness.name_history import Act, Deed, NameHistory
from threefs.errors import AlreadyExists, NotFound, ThreefsError

GROUPS = 10
NAMES = "abc"
TOP = "/names"
_TIMEOUT_S = 60.0
_PAUSE_S = 0.05

#: What a call told: whether it had its effect (None: nobody knows), and what a look saw.
Told = tuple[bool | None, str]


class Meaningless(Exception):
    """It had no effect, and why tells nothing of the names."""


def place_of(group: int, name: str) -> str:
    """A group's names lie in two directories, so that renames cross from one to the other."""
    return f"{TOP}/{'left' if name == NAMES[0] else 'right'}/{group}{name}"


class Names:
    """`clients` change names through connections of their own, and one more through each of `mounts`."""

    def __init__(self, address: str, clients: int, mounts: Sequence[Path], seed: int) -> None:
        self.history = NameHistory()
        self.errors: list[str] = []
        self._address = address
        self._clients = clients
        self._mounts = mounts
        self._seed = seed
        self._stopping = False
        self._tokens = 0

    async def prepare(self) -> None:
        async with await threefs_client.connect_async(self._address, timeout_s=_TIMEOUT_S, token=KEY) as fs:
            for side in ("left", "right"):
                await fs.mkdir(f"{TOP}/{side}", parents=True)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(self._clients):
                group.create_task(self._client(f"n{number}"))
            for number, root in enumerate(self._mounts):
                group.create_task(self._work(f"m{number}", through_mount(root), cached=True))

    def stop(self) -> None:
        self._stopping = True

    async def _client(self, name: str) -> None:
        async with await threefs_client.connect_async(self._address, timeout_s=_TIMEOUT_S, token=KEY) as fs:
            await self._work(name, through_client(fs))

    async def look_last(self) -> None:
        """At every name, once nothing changes any more."""
        async with await threefs_client.connect_async(self._address, timeout_s=_TIMEOUT_S, token=KEY) as fs:
            call = through_client(fs)
            for group in range(GROUPS):
                for name in NAMES:
                    await self._do("last", call, group, Act.LOOK, name, "")

    async def _work(self, client: str, call: "Call", *, cached: bool = False) -> None:
        dice = random.Random(f"{self._seed}/{client}")
        acts = [Act.MAKE, Act.MAKE, Act.REMOVE, Act.RENAME, *([] if cached else [Act.LOOK] * 2)]
        while not self._stopping:
            name, other = dice.sample(NAMES, 2)
            await self._do(client, call, dice.randrange(GROUPS), dice.choice(acts), name, other, cached=cached)
            await asyncio.sleep(dice.uniform(0, _PAUSE_S))

    async def _do(
        self, client: str, call: "Call", group: int, act: Act, name: str, other: str, *, cached: bool = False
    ) -> None:
        self._tokens += 1
        token = f"{client}-{self._tokens}" if act is Act.MAKE else ""
        to = other if act is Act.RENAME else ""
        deed = Deed(client, act, name, time.monotonic(), other=to, token=token, cached=cached)
        place = self.history.begin(str(group), deed)
        try:
            done, seen = await call(act, place_of(group, name), place_of(group, other) if other else "", token)
        except Meaningless:
            self.history.forget(str(group), place)
            return
        if done is None:
            self.history.give_up(str(group), place, time.monotonic())
        else:
            self.history.end(str(group), place, time.monotonic(), done, seen)


Call = Callable[[Act, str, str, str], Awaitable[Told]]


def through_client(fs: AsyncFileSystem) -> Call:
    """What it says is the truth, a refusal as well."""

    async def call(act: Act, path: str, other: str, token: str) -> Told:
        try:
            if act is Act.MAKE:
                await fs.symlink(token, path)
            elif act is Act.REMOVE:
                await fs.unlink(path)
            elif act is Act.RENAME:
                await fs.rename(path, other)
            else:
                return True, await fs.readlink(path)
        except AlreadyExists:
            return False, ""
        except NotFound:
            return act is Act.LOOK, ""
        except ThreefsError:
            return None, ""
        return True, ""

    return call


def through_mount(root: Path) -> Call:
    """The kernel may refuse by what it knew a moment ago, so a refusal tells nothing."""

    async def call(act: Act, path: str, other: str, token: str) -> Told:
        at, to = str(root) + path, str(root) + other
        work: dict[Act, Callable[[], None]] = {
            Act.MAKE: lambda: os.symlink(token, at),
            Act.REMOVE: lambda: os.unlink(at),
            Act.RENAME: lambda: os.rename(at, to),
        }
        try:
            await asyncio.to_thread(work[act])
        except OSError as error:
            if error.errno in (errno.EEXIST, errno.ENOENT):
                raise Meaningless from None
            if error.errno == errno.ENOTCONN:
                await asyncio.sleep(_PAUSE_S)  # the mount is dead, and comes back
            return None, ""
        return True, ""

    return call
