"""Mounts with delegations of directories, at real meta services in memory, with a clock of their own."""

import asyncio
import dataclasses
import random
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from threefs_meta.context import Context
from threefs_meta.lease import delegation as rules
from threefs_meta.ops.create import create
from threefs_meta.ops.delegate import delegate, return_delegation
from threefs_meta.ops.list_names import list_names
from threefs_meta.ops.remove import remove
from threefs_meta.ops.rename import rename
from threefs_mount.cache import delegation as bounds
from threefs_mount.cache import delegation_client as module
from threefs_mount.cache.delegation_client import DelegationClient

from tests.harness.meta_harness import MetaBench, at
from tests.harness.virtual_time import LOOP_CLOCK, run_virtual
from threefs.errors import AlreadyExists, NotFound, ThreefsError, Unavailable
from threefs.leases import DELEGATION_RECALL_S, DELEGATION_S
from threefs.rpc import methods
from threefs.rpc.methods import Method
from threefs.wire import meta_pb2 as pb

OPERATIONS: dict[Method[Any, Any], Callable[[Context, Any], Awaitable[Any]]] = {
    methods.DELEGATE: delegate,
    methods.RETURN_DELEGATION: return_delegation,
    methods.LIST_NAMES: list_names,
    methods.CREATE: create,
    methods.RENAME: rename,
    methods.REMOVE: remove,
}


class Calls:
    """Of one client, at whichever service it is."""

    def __init__(self, context: Context, client: bytes, delay: Callable[[], float] = lambda: 0.0) -> None:
        self.context, self.client, self.delay = context, client, delay
        self.failing = False
        self.made: list[str] = []
        self.request = 0

    def mutation(self) -> pb.Mutation:
        self.request += 1
        return pb.Mutation(client=self.client, request=self.request)

    async def call(self, method: Method[Any, Any], request: Any, *, timeout_s: float) -> Any:
        self.made.append(method.name)
        await asyncio.sleep(self.delay())
        if self.failing:
            raise Unavailable("nobody is there")
        reply = await OPERATIONS[method](self.context, request)
        await asyncio.sleep(self.delay())
        return reply


class Mount:
    """As much of one as adds and looks up names of a directory."""

    def __init__(self, calls: Calls, directory: int, **options: Any) -> None:
        self.calls, self.directory = calls, directory
        link: Any = SimpleNamespace(meta=calls, clock=LOOP_CLOCK)
        self.client = DelegationClient(link, creates_before_request=4, **options)

    def absent(self, name: str) -> bool:
        """Whether the mount knows it without a call. A lookup that finds nothing is recorded, as the mount does."""
        sure = self.client.delegations.is_negative(self.directory, name.encode(), LOOP_CLOCK.monotonic())
        if not sure:
            self.client.delegations.record_negative_lookup(self.directory, LOOP_CLOCK.monotonic())
        return sure

    async def create(self, name: str) -> None:
        self.absent(name)
        request = pb.CreateRequest(mutation=self.calls.mutation(), place=at(name, self.directory), exclusive=True)
        await self.client.track_file_create(request, self._created(request))

    async def _created(self, request: pb.CreateRequest) -> tuple[int, pb.CreateReply]:
        return 1, await self.calls.call(methods.CREATE, request, timeout_s=1.0)

    async def rename(self, old: str, new: str) -> None:
        source, destination = at(old, self.directory), at(new, self.directory)
        request = pb.RenameRequest(mutation=self.calls.mutation(), source=source, destination=destination)
        removal = self.client.delegations.begin_unlink(self.directory, old.encode())
        change = self.calls.call(methods.RENAME, request, timeout_s=1.0)
        await self.client.track_create(self.directory, new.encode(), request, change)
        self.client.delegations.unlink_done(removal)

    async def remove(self, name: str) -> None:
        removal = self.client.delegations.begin_unlink(self.directory, name.encode())
        request = pb.RemoveRequest(mutation=self.calls.mutation(), place=at(name, self.directory))
        await self.calls.call(methods.REMOVE, request, timeout_s=1.0)
        self.client.delegations.unlink_done(removal)


class Scene:
    """A directory, and two mounts at services of their own."""

    def __init__(self, fs: MetaBench, directory: int, delay: Callable[[], float]) -> None:
        self.fs, self.directory = fs, directory
        context = dataclasses.replace(fs.context, clock=LOOP_CLOCK)
        other = dataclasses.replace(context, random=fs.random)
        self.here = Mount(Calls(context, b"h" * 16, delay), directory)
        self.there = Mount(Calls(other, b"t" * 16, delay), directory)

    async def holder(self) -> bytes:
        """By whom."""
        return (await self.fs.context.namespace(self.fs.engine.begin()).require_inode(self.directory)).delegation.client

    async def hold(self, name: str = "first") -> None:
        """The mount here gets the delegation of the directory."""
        for number in range(5):
            await self.here.create(f"{name}-{number}")
        await asyncio.sleep(0.01)
        assert await self.holder() == b"h" * 16 and self.here.absent("x")


def play(scene: Callable[[Scene], Awaitable[None]], delay: Callable[[], float] = lambda: 0.0) -> None:
    async def whole() -> None:
        fs = await MetaBench().start()
        found = Scene(fs, (await fs.mkdir("/d")).inode, delay)
        await scene(found)
        await found.here.client.close()
        await found.there.client.close()
        assert not await found.holder()
        await fs.audit()

    run_virtual(whole())


def test_a_delegation_is_requested_after_repeated_creates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAGE", 2)

    async def scene(found: Scene) -> None:
        await found.hold()
        for number in range(5):
            assert not found.here.absent(f"first-{number}")
        assert found.here.calls.made.count("ListNames") == 3
        await found.here.rename("first-0", "renamed")
        assert found.here.absent("first-0") and not found.here.absent("renamed")
        await found.here.remove("renamed")
        assert found.here.absent("renamed") and not found.there.absent("x")
        await found.here.create("renamed")
        with pytest.raises(AlreadyExists):
            await found.here.create("first-1")
        assert not found.here.absent("first-1")
        await asyncio.sleep(1.1 * DELEGATION_S)
        assert not found.here.absent("x")
        await found.here.create("more")
        assert found.here.absent("x") and found.here.calls.made.count("Delegate") == 1

    play(scene)


def test_without_a_cache_no_delegation_is_requested() -> None:
    async def scene(found: Scene) -> None:
        found.here = Mount(found.here.calls, found.directory, enabled=False)
        for number in range(20):
            await found.here.create(f"{number}")
        assert set(found.here.calls.made) == {"Create"}

    play(scene)


def test_others_wait_until_the_holder_hears_of_it() -> None:
    async def scene(found: Scene) -> None:
        await found.hold()
        began_s = LOOP_CLOCK.monotonic()
        adding = asyncio.create_task(found.there.create("x"))
        await asyncio.sleep(0.01)
        assert found.here.absent("x") and not adding.done()
        await found.here.create("y")
        await adding
        assert LOOP_CLOCK.monotonic() - began_s < DELEGATION_RECALL_S / 2
        assert not found.here.absent("x") and not found.here.absent("z")
        for number in range(30):
            await found.here.create(f"later-{number}")
        assert not await found.holder()

    play(scene)


def test_others_wait_no_longer_than_a_moment_for_one_that_does_nothing() -> None:
    async def scene(found: Scene) -> None:
        await found.hold()
        began_s = LOOP_CLOCK.monotonic()
        await found.there.create("x")
        assert DELEGATION_RECALL_S <= LOOP_CLOCK.monotonic() - began_s < 2 * DELEGATION_RECALL_S
        assert not found.here.absent("x")
        await found.here.create("y")
        assert not found.here.absent("x")

    play(scene)


def test_what_is_used_no_more_is_given_back_in_one_call() -> None:
    async def scene(found: Scene) -> None:
        await found.hold()
        await asyncio.sleep(2.5)
        assert not await found.holder() and found.here.calls.made.count("ReturnDelegation") == 1
        await found.hold("second")

    play(scene)


def test_failed_creates_request_no_delegation() -> None:
    async def scene(found: Scene) -> None:
        for number in range(3):
            await found.here.create(f"{number}")
        made = found.here.calls.call

        async def cut_off(method: Method[Any, Any], request: Any, *, timeout_s: float) -> Any:
            found.here.calls.failing = method is methods.LIST_NAMES
            return await made(method, request, timeout_s=timeout_s)

        found.here.calls.call = cut_off  # type: ignore[method-assign]
        await found.here.create("last")
        await asyncio.sleep(0.01)
        assert found.here.calls.made[-3:] == ["Delegate", "ListNames", "ReturnDelegation"]
        assert not found.here.absent("x") and not await found.holder()
        found.here.calls.failing = True
        with pytest.raises(Unavailable):
            await found.here.calls.call(methods.LIST_NAMES, pb.ListNamesRequest(), timeout_s=1.0)

    play(scene)


def test_an_unnamed_file_adds_no_name_and_one_that_is_there_says_nothing() -> None:
    async def scene(found: Scene) -> None:
        await found.hold()
        place = at("", found.directory)
        unnamed = pb.CreateRequest(mutation=found.here.calls.mutation(), place=place, unnamed=True, session=b"s" * 16)
        await found.here.client.track_file_create(unnamed, found.here._created(unnamed))
        existing = pb.CreateRequest(mutation=found.here.calls.mutation(), place=at("first-1", found.directory))
        _, reply = await found.here.client.track_file_create(existing, found.here._created(existing))
        assert not reply.created and not reply.delegation
        assert found.here.absent("x") and len(found.here.client.delegations) == 1

    play(scene)


@pytest.mark.parametrize("seed", range(15))
def test_what_is_there_is_never_absent(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two mounts do what they like, each several things at a time, and ask for the delegation whenever they may."""
    monkeypatch.setattr(rules, "COOLDOWN_TICKS", 0)
    monkeypatch.setattr(bounds, "PAUSE_S", 0.0)
    dice = random.Random(seed)
    names = [f"n{number}" for number in range(8)]
    sure = 0

    async def programs(found: Scene, mount: Mount, steps: int) -> None:
        nonlocal sure
        for _ in range(steps):
            name, other = dice.sample(names, 2)
            if dice.random() < 0.1:
                await asyncio.sleep(dice.choice((0.05, 0.3, 1.2)))
            here = set(await found.fs.names("/d"))  # waits for nothing in memory, so it is of this moment
            for one in (found.here, found.there):
                surely = {each for each in names if one.absent(each)}
                assert not surely & here
                sure += len(surely)
            try:
                what = dice.random()
                if what < 0.6:
                    await mount.create(name)
                elif what < 0.8:
                    await mount.rename(name, other)
                else:
                    await mount.remove(name)
            except ThreefsError as error:
                assert isinstance(error, AlreadyExists | NotFound)

    async def scene(found: Scene) -> None:
        for delegations in (found.here.client.delegations, found.there.client.delegations):
            delegations._creates_before_request = 1
        quiet = dice.random() < 0.5
        await asyncio.gather(
            *(programs(found, found.here, 150) for _ in range(2)),
            *(programs(found, found.there, 5 if quiet else 60) for _ in range(2)),
        )

    play(scene, lambda: dice.choice((0.0, 0.0, 0.001, 0.01, 0.1)))
    assert sure
