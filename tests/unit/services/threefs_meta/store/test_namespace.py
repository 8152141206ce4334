"""The whole namespace against a simple model: any sequence of operations gives what a tree of dictionaries gives."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from threefs_meta.ops.link import link
from threefs_meta.ops.report_atime import report_atime
from threefs_meta.store import keys
from threefs_meta.store.namespace import Namespace
from threefs_meta.trash.trash_reaper import TrashReaper

from tests.harness.meta_harness import SESSION, MetaBench, at
from tests.harness.namespace_model import Model
from threefs.errors import Corrupt, NotFound, ThreefsError
from threefs.kv import records
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import DirectoryTimes

NAMES = st.sampled_from(["a", "b", "c"])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))


class NamespaceMachine(RuleBasedStateMachine):
    """Every rule does the same to both and compares results and errors. Every change of either ends in the audit."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.fs = self.wait(MetaBench(conflict_rate=0.1, unknown_rate=0.1, seed=1).start())
        self.model = Model()
        self.checked: tuple[int, dict[str, Any]] | None = None  # version of the store, and the tree of the model

    def wait(self, work: Awaitable[Any]) -> Any:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        try:
            self.wait(self.fs.collect_all())
            self.wait(self.fs.audit())
            assert len(self.wait(self.fs.engine.begin().get_range(*keys.INODES))) == self.model.inodes()
        finally:
            self.loop.close()

    def both(self, real: Awaitable[Any], *model: Any) -> None:
        method, *arguments = model
        try:
            wanted: type[BaseException] | None = None
            method(*arguments)
        except OSError as error:
            wanted = type(error)
        try:
            self.wait(real)
            got: type[BaseException] | None = None
        except ThreefsError as error:
            got = type(error)
        assert got is wanted, f"{method.__name__}{tuple(arguments)}: {got}, the model says {wanted}"

    @rule(path=PATHS, exclusive=st.booleans(), parents=st.booleans())
    def create(self, path: str, exclusive: bool, parents: bool) -> None:
        real = self.fs.create(path, exclusive=exclusive, parents=parents)
        self.both(real, self.model.create, path, exclusive, parents)

    @rule(path=PATHS, parents=st.booleans())
    def mkdir(self, path: str, parents: bool) -> None:
        self.both(self.fs.mkdir(path, parents=parents), self.model.mkdir, path, parents)

    @rule(path=PATHS, recursive=st.booleans())
    def remove(self, path: str, recursive: bool) -> None:
        self.both(self.fs.remove(path, recursive=recursive), self.model.remove, path, recursive)
        if self.model.lags:
            self.wait(self.fs.collect_all())
            self.model.lags = False

    @rule(source=PATHS, destination=PATHS, no_replace=st.booleans())
    def rename(self, source: str, destination: str, no_replace: bool) -> None:
        real = self.fs.rename(source, destination, no_replace=no_replace)
        self.both(real, self.model.rename, source, destination, no_replace)

    @rule(source=PATHS, destination=PATHS)
    def link(self, source: str, destination: str) -> None:
        self.both(self.fs.link(source, destination), self.model.link, source, destination)

    @rule()
    def collect(self) -> None:
        self.wait(self.fs.collector.collect())

    @invariant()
    def same_tree_and_sound(self) -> None:
        """Most steps are refused and write nothing. Then both are as they were when they were last compared."""
        now = self.fs.engine.version, self.model.shown()
        if now != self.checked:
            assert self.wait(self.tree("/")) == now[1]
            self.wait(self.fs.audit())
            self.checked = now

    async def tree(self, path: str) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for name in await self.fs.names(path):
            inode = await self.fs.stat(f"{path}/{name}", follow=False)
            shown[name] = await self.tree(f"{path}/{name}") if inode.type == pb.DIRECTORY else inode.nlink
        return shown


NamespaceMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
test_any_sequence = NamespaceMachine.TestCase


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.trouble(conflict_rate=0.05, unknown_rate=0.05)
async def test_operations_at_once_leave_a_sound_tree(bench: MetaBench, seed: int) -> None:
    await bench.mkdir("/a/b", parents=True)
    await bench.mkdir("/c/d", parents=True)
    draw = bench.random.below

    async def worker() -> None:
        for _ in range(30):
            one, two = ("/" + "/".join("abcd"[draw(4)] for _ in range(1 + draw(3))) for _ in range(2))
            work: list[Any] = [
                bench.create(one, parents=True),
                bench.mkdir(one, parents=True),
                bench.rename(one, two),
                bench.link(one, two),
                bench.remove(one),
                bench.remove(one, recursive=True),
                bench.collector.collect(),
            ]
            chosen = work.pop(draw(len(work)))
            for other in work:
                other.close()
            with contextlib.suppress(ThreefsError):  # which ones fail depends on the order; the audit judges
                await chosen

    await asyncio.gather(*(worker() for _ in range(6)))
    await bench.audit()
    await bench.collect_all()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.trouble(conflict_rate=0.05, unknown_rate=0.05)
async def test_with_a_trash_and_files_without_names_it_is_as_sound(bench: MetaBench, seed: int) -> None:
    """Everything at once: what is kept, restored, expired, and given its first name, while trees go."""
    await bench.mkdir("/a/b", parents=True)
    await bench.set_trash("/", 20)
    draw = bench.random.below

    async def unnamed(directory: str, path: str) -> None:
        session = bench.random.token(16)
        made = (await bench.create(directory, session=session, unnamed=True)).inode
        with contextlib.suppress(ThreefsError):
            request = pb.LinkRequest(mutation=bench.mutation(), source=at("", made.inode), destination=at(path))
            await link(bench.context, request)
        await bench.close(made, session)

    async def restore(path: str) -> None:
        items = await bench.trash()
        await bench.rename(f"/.trash/0/{items[draw(len(items))].name.decode()}", path, no_replace=True)

    async def empty() -> None:
        for item in (await bench.trash())[:2]:
            await bench.remove(f"/.trash/0/{item.name.decode()}", recursive=True)

    async def worker() -> None:
        for _ in range(30):
            one, two = ("/" + "/".join("abcd"[draw(4)] for _ in range(1 + draw(3))) for _ in range(2))
            work: list[Any] = [
                bench.create(one, parents=True),
                bench.mkdir(one, parents=True),
                bench.rename(one, two),
                bench.link(one, two),
                bench.remove(one),
                bench.remove(one, recursive=True),
                bench.collector.collect(),
                unnamed(one, two),
                restore(one),
                empty(),
                bench.set_trash(one, (0, 5, 1000, None)[draw(4)]),
                TrashReaper(bench.context).expire(),
                bench.pass_ticks(1),
            ]
            chosen = work.pop(draw(len(work)))
            for other in work:
                other.close()
            with contextlib.suppress(ThreefsError, ValueError):  # an empty trash has nothing to draw from
                await chosen

    await asyncio.gather(*(worker() for _ in range(6)))
    await bench.audit()
    await bench.collect_all()


async def test_a_damaged_record_is_an_error_and_never_half_believed(bench: MetaBench) -> None:
    number = (await bench.create("/a")).inode.inode
    key = keys.inode(number)
    tx = bench.engine.begin()
    value = await tx.get(key)
    assert value is not None
    for place in range(len(value)):
        for bit in range(8):
            damaged = bytearray(value)
            damaged[place] ^= 1 << bit
            tx = bench.engine.begin()
            tx.set(key, bytes(damaged))
            with pytest.raises(Corrupt, match="INOD"):
                await Namespace(tx).inode(number)


async def test_a_directory_is_read_once_until_it_is_changed(bench: MetaBench) -> None:
    made = await bench.mkdir("/d")
    tx = bench.engine.begin()
    ns = bench.context.namespace(tx)
    first = await ns.directory(made.inode)
    assert await ns.read_shared(made.inode) is first
    assert await ns.inode(made.inode) is not first, "who changes it has one of its own"
    changed = await ns.require_inode(made.inode)
    changed.mode = 0o700
    ns.put_inode(changed)
    assert (await ns.directory(made.inode)).mode == 0o700
    ns.clear_inode(changed)
    with pytest.raises(NotFound):
        await ns.directory(made.inode)


async def test_the_times_of_a_directory_change_once_at_a_time(bench: MetaBench) -> None:
    tx = bench.engine.begin()
    ns = bench.context.namespace(tx)
    ns.mark_changed(5, 10)
    first = await ns.directory_token(5)
    ns.mark_changed(5, 10)
    assert await ns.directory_token(5) == first
    ns.mark_changed(5, 11)
    second = await ns.directory_token(5)
    assert second != first
    ns.set_times(5, 3, 11)
    ns.mark_changed(5, 11)
    assert records.decode(tx.writes[keys.times(5)] or b"", DirectoryTimes, b"").mtime_ns == 11
    ns.mark_changed(6, 11)
    ns.clear_inode(pb.Inode(inode=6, type=pb.DIRECTORY))
    ns.mark_changed(6, 11)
    assert await ns.directory_token(6)


async def test_whatever_a_reader_could_see_raises_the_change_of_a_file_by_one(bench: MetaBench) -> None:
    made = (await bench.create("/a", session=SESSION)).inode
    assert made.change == 1
    changes: list[Callable[[], Awaitable[object]]] = [
        lambda: bench.set("/a", mode=0o600),
        lambda: bench.set("/a", mtime_ns=made.mtime_ns),
        lambda: bench.link("/a", "/b"),
        lambda: bench.remove("/b"),
        lambda: bench.rename("/a", "/b"),
        lambda: bench.rename("/b", "/a"),
        lambda: bench.set_xattr("/a", b"user.x", b"1"),
        lambda: bench.remove_xattr("/a", b"user.x"),
        lambda: bench.truncate("/a", 100),
        lambda: bench.open("/a", truncate=True),
        lambda: bench.close(made, b"", length_hint=4, written=True, truncate_version=2),
    ]
    for number, change in enumerate(changes, 2):
        await change()
        (now,) = await Namespace(bench.engine.begin()).inodes([made.inode])
        assert now is not None and now.change == number


async def test_what_no_reader_sees_leaves_the_change_of_a_file(bench: MetaBench) -> None:
    await bench.create("/a", session=SESSION)
    made = await bench.set("/a", atime_ns=1)
    await bench.open("/a", session=b"2" * 16)
    await bench.close(made, b"2" * 16, attempted_end=1 << 40)
    assert (await bench.stat("/a")).chains_used > made.chains_used, "the record is another one"
    await report_atime(bench.context, pb.ReportAtimeRequest(inode=[made.inode], ago_ms=[0]))
    found = await bench.stat("/a")
    assert found.atime_ns > 1 and found.change == made.change


async def test_the_change_of_a_directory_is_another_one_with_each_change_of_it_or_its_entries(bench: MetaBench) -> None:
    seen = [(await bench.mkdir("/d")).change]
    changes: list[Callable[[], Awaitable[object]]] = [
        lambda: bench.create("/d/a"),
        lambda: bench.set("/d", mode=0o700),
        lambda: bench.set("/d", mtime_ns=1),
        lambda: bench.rename("/d/a", "/d/b"),
        lambda: bench.remove("/d/b"),
        lambda: bench.set_xattr("/d", b"user.x", b"1"),
    ]
    for change in changes:
        await change()
        seen.append((await bench.stat("/d")).change)
        assert (await bench.stat("/d")).change == seen[-1]
    assert len(set(seen)) == len(seen)
