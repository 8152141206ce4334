import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs
from threefs_client.async_filesystem import AsyncFileSystem

from tests.harness.memory_cluster import META_ADDRESSES, MemoryConnection, MemoryFiles
from tests.harness.virtual_time import LOOP_CLOCK, run_virtual
from threefs.env.eager import StartedCoroutine
from threefs.errors import (
    AlreadyExists,
    Cancelled,
    Conflict,
    ConnectionLost,
    NotFound,
    OutcomeUnknown,
    Overloaded,
    ThreefsError,
    Unavailable,
)
from threefs.routing import EMPTY, NodeKind, Routing
from threefs.rpc.methods import CREATE, OPEN, STAT
from threefs.rpc.traffic_class import TrafficClass
from threefs.wire import meta_pb2 as pb


def play(scene: Callable[[MemoryFiles, AsyncFileSystem], Awaitable[None]]) -> None:
    async def run() -> None:
        files = MemoryFiles(timeout_s=0.3)
        await scene(files, AsyncFileSystem(files.context))

    run_virtual(run())


@pytest.mark.parametrize("error", [Unavailable(), ConnectionLost(), Overloaded(), Conflict()])
@pytest.mark.parametrize("after", [False, True])
def test_another_meta_service_is_asked_under_the_same_identity(error: ThreefsError, after: bool) -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        files.peers.meta_faults = [(after, error)]
        await fs.open("/a", "xb")
        (first, _, request), (second, _, again) = files.peers.meta_calls
        assert {first, second} == set(META_ADDRESSES)
        assert request.mutation == again.mutation

    play(scene)


@pytest.mark.parametrize(("error", "again"), [(Unavailable(), False), (ConnectionLost(), True)])
def test_a_repeat_says_that_an_attempt_before_it_may_still_arrive(error: ThreefsError, again: bool) -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        files.peers.meta_faults = [(False, error), (False, Unavailable())]
        await fs.open("/a", "xb")
        assert files.peers.meta_calls[-1][2].mutation.again is again

    play(scene)


def test_mutations_have_different_identities() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        await fs.open("/a", "xb")
        await fs.open("/b", "xb")
        first, second = (request.mutation for _, _, request in files.peers.meta_calls)
        assert first.client == second.client == b"c" * 16
        assert first.request != second.request

    play(scene)


def test_changes_in_one_message_end_each_for_itself() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        await fs.create("/b")
        meta = files.context.meta
        before = len(files.peers.meta_calls)
        creates = [pb.CreateRequest(place=pb.Place(path=path), exclusive=True) for path in (b"a", b"b", b"c")]
        first, second, third = await meta.send_changes([(CREATE, request) for request in creates], timeout_s=1.0)
        assert (first.inode.inode, third.inode.inode) == (3, 4) and isinstance(second, AlreadyExists)
        assert len(files.peers.meta_calls) == before + 1

    play(scene)


def test_a_change_that_has_to_go_alone_does() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        async def none_of_them(request: pb.BatchRequest) -> pb.BatchReply:
            return pb.BatchReply(results=[pb.Changed(retry_alone=True) for _ in request.changes])

        files.meta._batch = none_of_them  # type: ignore[method-assign]
        creates = [
            pb.CreateRequest(mutation=files.context.meta.mutation(), place=pb.Place(path=path)) for path in (b"a", b"b")
        ]
        first, second = await files.context.meta.send_changes([(CREATE, request) for request in creates], timeout_s=1.0)
        assert (first.inode.inode, second.inode.inode) == (2, 3)

    play(scene)


def test_a_lost_answer_at_the_deadline_leaves_a_mutation_open_but_not_a_look() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        files.peers.meta_faults = [(True, ConnectionLost())] * 1000
        with pytest.raises(OutcomeUnknown, match=r"Meta\.Create"):
            await fs.open("/a", "xb")
        with pytest.raises(ConnectionLost):
            await fs.exists("/a")
        files.peers.meta_faults = [(False, Unavailable())] * 1000
        with pytest.raises(Unavailable):
            await fs.open("/b", "xb")

    play(scene)


def test_an_answer_of_no_is_final() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        with pytest.raises(NotFound):
            await fs.open("/none")
        assert len(files.peers.meta_calls) == 1

    play(scene)


def test_sequential_calls_are_sent_at_once() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        turns = []
        for count in (1, 2, 3):
            looking = fs.context.meta.call(STAT, pb.StatRequest(place=pb.Place(path=b"/none")), timeout_s=1.0)
            task = asyncio.ensure_future(looking)
            turns.append(0)
            while len(files.peers.meta_calls) < count:
                await asyncio.sleep(0)
                turns[-1] += 1
            with pytest.raises(NotFound):
                await task
        assert turns == [4, 2, 2], "only the first one might have had company; and the service here takes a turn"

    play(scene)


def test_a_close_ends_the_attempts() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        files.peers.meta_faults = [(False, Unavailable())] * 1000
        opening = asyncio.ensure_future(fs.context.meta.call(OPEN, pb.OpenRequest(), timeout_s=60.0))
        await asyncio.sleep(0.01)
        await fs.context.meta.close()
        with pytest.raises(Cancelled):
            await opening

    play(scene)


def test_no_meta_service_at_all() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        files.cluster.routing = EMPTY
        with pytest.raises(Unavailable, match="threefs up"):
            await fs.exists("/a")

    play(scene)


def test_a_call_that_no_task_has_begun_waits_for_a_meta_service() -> None:
    """A mount starts calls so. They failed at once, with an error that says nothing, instead of after their timeout."""

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        def begin() -> None:
            call = fs.context.meta.send(STAT, pb.StatRequest(place=pb.Place(path=b"a")), timeout_s=0.3)
            begun.set_result(asyncio.ensure_future(StartedCoroutine(call, call.send(None))))

        async def refresh(newer_than: int, timeout_s: float) -> Routing:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await asyncio.Event().wait()
            return EMPTY

        loop = asyncio.get_running_loop()
        begun: asyncio.Future[asyncio.Future[Any]] = loop.create_future()
        files.cluster.routing = EMPTY
        files.cluster.refresh = refresh  # type: ignore[method-assign]
        since = loop.time()
        loop.call_soon(begin)
        with pytest.raises(Unavailable, match="threefs up"):
            await (await begun)
        assert loop.time() - since > 0.2

    play(scene)


def test_services_that_only_the_manager_cannot_reach_are_asked_on() -> None:
    """They are in no routing any more. The client lost its lease, though the service had served all the time."""

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        await fs.exists("/a")
        files.cluster.routing = EMPTY
        await fs.exists("/a")
        assert {address for address, _, _ in files.peers.meta_calls} <= set(META_ADDRESSES)
        assert len(files.peers.meta_calls) == 2

    play(scene)


def test_a_machine_that_is_gone_does_not_keep_a_call_from_the_next_service() -> None:
    """The call went on connecting with the service that it knew for 10 s, though another one had registered."""

    async def run() -> None:
        files = MemoryFiles(timeout_s=30.0)
        fs = AsyncFileSystem(files.context)
        listed, connect = files.cluster.routing, files.peers.connect

        async def connect_slowly(
            address: str, timeout_s: float, traffic: TrafficClass = TrafficClass.METADATA
        ) -> MemoryConnection:
            if address not in files.storage.down:
                return await connect(address, timeout_s, traffic)
            await asyncio.sleep(timeout_s)
            raise Unavailable(f"cannot connect to {address}")

        await fs.exists("/a")
        files.peers.connect = connect_slowly  # type: ignore[method-assign]
        files.storage.down = set(META_ADDRESSES)
        files.cluster.routing = EMPTY
        since = LOOP_CLOCK.monotonic()
        looking = asyncio.ensure_future(fs.exists("/a"))
        await asyncio.sleep(3)
        nodes = {n: replace(node, address="meta-3:1") for n, node in listed.nodes.items() if node.kind is NodeKind.META}
        files.cluster.routing = replace(listed, nodes=nodes)
        await looking
        assert LOOP_CLOCK.monotonic() - since < 5

    run_virtual(run())


def test_a_wait_for_a_meta_service_is_logged_once_and_soon() -> None:
    """A program that asks a mount of a dead cluster says nothing until it fails."""

    async def run() -> None:
        files = MemoryFiles(timeout_s=10.0)
        fs = AsyncFileSystem(files.context)
        with capture_logs() as logs:
            for _ in range(2):
                files.peers.meta_faults = [(False, Unavailable("nobody listens"))] * 200
                looking = asyncio.ensure_future(fs.exists("/a"))
                await asyncio.sleep(2.5)
                assert not looking.done()
                told = [log for log in logs if log["log_level"] == "warning"]
                expected = "no meta service answers: calls are repeated until their timeout"
                assert [log["event"] for log in told] == [expected]
                assert told[0]["timeout_s"] == 10.0 and "nobody listens" in told[0]["error"]
                files.peers.meta_faults.clear()
                await looking
                assert logs.pop()["event"] == "a meta service answers again"
                logs.clear()

    configured = structlog.is_configured()
    structlog.configure()
    try:
        run_virtual(run())
    finally:
        if not configured:
            structlog.reset_defaults()
