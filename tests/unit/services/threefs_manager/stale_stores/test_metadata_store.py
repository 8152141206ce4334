import asyncio
import dataclasses
from typing import Any

import pytest
from threefs_manager.nodes.failure_detector import FailureDetector
from threefs_manager.stale_stores.metadata_store import SoleService, admit, check_store

from tests.harness.beating_nodes import Bench, run
from tests.harness.clocks import SteppedClock
from tests.harness.terms import take
from tests.harness.virtual_time import LOOP_CLOCK
from threefs import routing as routing_module
from threefs.env.net import RealNet
from threefs.errors import ConnectionRefused, InvalidArgument, NodeInUse, StrangeStore, Unavailable
from threefs.ids import NodeId
from threefs.kv.memory import MemoryEngine
from threefs.routing import Routing
from threefs.wire import manager_pb2 as pb

KNOWN = pb.MetadataStore(store_id="aa", epoch=2, generation=50)


def asked(
    store_id: str = "aa", epoch: int = 2, generation: int = 50, *, cluster: str = "c", restored: bool = False
) -> pb.AdmitStoreRequest:
    return pb.AdmitStoreRequest(
        cluster_id=cluster, store_id=store_id, epoch=epoch, generation=generation, restored=restored
    )


def test_the_first_store_is_taken_and_an_empty_one_may_become_it() -> None:
    nothing = pb.MetadataStore()
    assert check_store(nothing, "c", asked("", 0, 0)) == nothing
    assert check_store(nothing, "c", asked("aa", 0, 3)) == pb.MetadataStore(store_id="aa", epoch=0, generation=3)


def test_a_rebuilt_manager_takes_the_first_store_that_is_not_empty() -> None:
    forgotten = pb.MetadataStore(forgotten=True)
    with pytest.raises(StrangeStore, match="is empty, but cluster c, whose manager was rebuilt, has one"):
        check_store(forgotten, "c", asked("", 0, 0))
    assert check_store(forgotten, "c", asked("aa", 3, 7)) == pb.MetadataStore(store_id="aa", epoch=3, generation=7)
    given = check_store(forgotten, "c", asked("aa", 3, 7, restored=True))
    assert given.given_epoch == 4
    serving = check_store(given, "c", asked("aa", 4, 7))
    assert (serving.store_id, serving.epoch, serving.forgotten) == ("aa", 4, False)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (asked("", 0, 0), "is empty, but cluster c keeps its metadata in store aa.*threefs restore"),
        (asked("bb", 2, 99), "is the metadata store bb, but .* in store aa.*threefs restore"),
        (asked(cluster="d"), "belongs to cluster d, this manager to c"),
        (asked("aa", 2, 49), "an older copy.*epoch 2 at tick 49.*epoch 2 and tick 50.*threefs meta load"),
        (asked("aa", 1, 999), "an older copy"),
        (asked("bb", 2, 50, restored=True), "is the metadata store bb"),
        (asked("", 0, 0, restored=True), "is empty"),
    ],
)
def test_what_is_strange_is_refused_in_words_that_say_what_to_do(request_: pb.AdmitStoreRequest, words: str) -> None:
    with pytest.raises(StrangeStore, match=words):
        check_store(KNOWN, "c", request_)


def test_a_manager_without_a_cluster_says_that_its_own_store_is_the_strange_one() -> None:
    """The service waits until that is restored. It ended, and programs got the error."""
    with pytest.raises(Unavailable, match=r"the manager's store is empty.*threefs restore"):
        check_store(pb.MetadataStore(), "", asked())


def test_a_store_that_would_give_out_inode_numbers_again_is_refused() -> None:
    known = pb.MetadataStore(store_id="aa", epoch=2, generation=50, next_inode=900)
    with pytest.raises(StrangeStore, match=r"next inode number is 899.*up to 899.*threefs meta load"):
        check_store(known, "c", inodes(asked(), 899))
    assert check_store(known, "c", inodes(asked(), 901)).next_inode == 901
    assert check_store(known, "c", asked()) == known, "a service of an older version does not say"
    assert check_store(known, "c", inodes(asked(epoch=3, generation=1), 7)).next_inode == 7, "it was restored"
    given = check_store(known, "c", inodes(asked(epoch=0, restored=True), 7))
    assert check_store(given, "c", inodes(asked(epoch=3, generation=1), 8)).next_inode == 8


def inodes(request: pb.AdmitStoreRequest, next_inode: int) -> pb.AdmitStoreRequest:
    request.next_inode = next_inode
    return request


@pytest.mark.parametrize("restored", [False, True])
def test_an_epoch_that_no_inode_number_has_is_refused(restored: bool) -> None:
    for epoch in ((1 << 64) - 1, (1 << 24) - 1):
        with pytest.raises(InvalidArgument, match=f"epoch {epoch}, of 16777216"):
            check_store(KNOWN, "c", asked(epoch=epoch, restored=restored))


def test_what_goes_on_is_remembered() -> None:
    assert check_store(KNOWN, "c", asked(generation=51)).generation == 51
    assert check_store(KNOWN, "c", asked()) == KNOWN
    assert check_store(KNOWN, "c", asked(epoch=3, generation=1)) == pb.MetadataStore(
        store_id="aa", epoch=3, generation=1
    ), "the manager itself was restored from a backup that is older"


def test_each_restored_store_gets_an_epoch_that_none_had_before() -> None:
    first = check_store(KNOWN, "c", asked(epoch=0, generation=7, restored=True))
    assert first.given_epoch == 3
    assert check_store(first, "c", asked(epoch=0, generation=7, restored=True)).given_epoch == 4, "the same once more"
    assert check_store(first, "c", asked(epoch=9, generation=7, restored=True)).given_epoch == 10
    serving = check_store(first, "c", asked(epoch=3, generation=8))
    assert (serving.epoch, serving.generation) == (3, 8)
    with pytest.raises(StrangeStore):
        check_store(serving, "c", asked(epoch=2, generation=60))


def test_a_request_of_a_restored_store_that_was_lost_comes_late() -> None:
    """The manager had slept in its transaction. The store that was restored after that one counted as an older copy
    from then on, and its services ended."""
    request = asked(epoch=0, generation=7, restored=True)
    request.restore_id = "second"
    given = check_store(KNOWN, "c", request)
    serving = check_store(given, "c", inodes(asked(epoch=given.given_epoch, generation=8), 900))
    request.restore_id = "first"
    late = check_store(serving, "c", request)
    assert late.given_epoch == 4, "nobody will ever use it"
    assert check_store(late, "c", inodes(asked(epoch=3, generation=9), 901)).generation == 9
    late = check_store(given, "c", request)
    assert check_store(late, "c", inodes(asked(epoch=3, generation=9), 901)).epoch == 3, "it was about to serve"


def test_an_older_manager_does_not_take_the_epoch_in_use_for_that_of_a_restored_store() -> None:
    """It knows `restore_id` as that of the store with `epoch`. A restored store that asked it again got the numbers of
    the store before once more."""
    request = asked(generation=7, restored=True)
    request.restore_id = "r1"
    given = check_store(KNOWN, "c", request)
    assert (given.epoch, given.restore_id, given.given_epoch) == (2, "", 3)
    serving = check_store(given, "c", asked(epoch=3, generation=8))
    assert (serving.epoch, serving.restore_id) == (3, "r1")
    assert check_store(serving, "c", asked(epoch=3, generation=9)).restore_id == "r1"
    by_older = pb.MetadataStore(store_id="aa", epoch=3, generation=8, restore_id="r1")
    assert check_store(by_older, "c", request) == by_older


def test_all_services_of_one_restored_store_get_one_epoch() -> None:
    request = asked(epoch=0, generation=7, restored=True)
    request.restore_id = "r1"
    first = check_store(KNOWN, "c", request)
    assert first.given_epoch == 3 and check_store(first, "c", request) == first
    serving = check_store(first, "c", asked(epoch=3, generation=9))
    assert check_store(serving, "c", request) == serving, "the other one serves already"
    request.restore_id = "r2"
    assert check_store(serving, "c", request).given_epoch == 4
    request.restore_id = "r1"
    serving.next_epoch = 700
    assert check_store(serving, "c", request).given_epoch == 700, "a restored manager may not know the newest epoch"


def test_a_copy_of_a_restored_store_from_before_its_first_start_is_refused() -> None:
    """It was made while a service waited for a manager: it names the restore, and knows nothing that was made since."""
    request = asked(epoch=0, generation=7, restored=True)
    request.restore_id = "r1"
    restored = check_store(KNOWN, "c", request)
    assert check_store(restored, "c", request) == restored, "the answer may have been lost"
    serving = check_store(restored, "c", inodes(asked(epoch=3, generation=9), 4096))
    with pytest.raises(StrangeStore, match="older copy"):
        check_store(serving, "c", request)
    request.epoch = 3
    assert check_store(serving, "c", request) == serving, "another service, which has looked for the restore before"
    request.epoch, request.restore_id = 0, "r2"
    assert check_store(serving, "c", request).given_epoch == 4, "it was loaded as a backup"


def test_a_restored_manager_may_not_know_the_newest_epoch() -> None:
    """It makes the next one from its clock, when it begins."""
    known = pb.MetadataStore(store_id="aa", epoch=2, generation=50, next_epoch=700)
    assert check_store(known, "c", asked()) == known, "the store that lives has the epoch that it had"
    restored = check_store(known, "c", asked(epoch=0, generation=7, restored=True))
    assert (restored.given_epoch, restored.next_epoch) == (700, 700)
    assert check_store(restored, "c", asked(epoch=0, generation=7, restored=True)).given_epoch == 701


async def test_it_is_kept_in_the_store_of_the_manager() -> None:
    engine = MemoryEngine()
    tx = engine.begin()
    assert (await admit(tx, "c", asked(epoch=4))).epoch == 4
    await tx.commit()
    with pytest.raises(StrangeStore):
        await admit(engine.begin(), "c", asked("bb"))
    tx = engine.begin()
    assert (await admit(tx, "c", asked(epoch=4, restored=True))).epoch == 5
    await tx.commit()


def meta_services(*addresses: str) -> tuple[Routing, FailureDetector, SoleService]:
    """All of them were heard of just now."""
    clock = SteppedClock()
    detector = FailureDetector(clock)
    nodes = [
        pb.Node(node_id=number, kind=pb.META, address=address, incarnation=1)
        for number, address in enumerate(addresses, 1000)
    ]
    routing = routing_module.from_wire(pb.Routing(version=1, cluster_id="c", nodes=nodes, lease_ms=10_000))
    for node in nodes:
        detector.on_heartbeat(node.node_id, 1, (), routing)
    return routing, detector, SoleService(RealNet(), clock)


async def at_once() -> None:
    pass


async def test_a_copy_of_a_store_for_one_process_is_not_served_beside_it() -> None:
    living, copy = await RealNet().listen("127.0.0.1", 0, lambda stream: stream.close()), "127.0.0.1:1"
    routing, detector, service = meta_services(living.address, copy, "127.0.0.1:2")
    await service.admit(living.address, lambda: routing, detector, at_once)
    with pytest.raises(NodeInUse, match=f"lives at {living.address}.*is a copy"):
        await service.admit(copy, lambda: routing, detector, at_once)
    # Started again, while the copy waits.
    await service.admit(living.address, lambda: routing, detector, at_once)
    await service.admit("", lambda: routing, detector, at_once)
    living.close()
    # At once, though the one before was heard of a moment ago.
    await service.admit(copy, lambda: routing, detector, at_once)


async def test_a_copy_is_not_served_beside_a_store_whose_admission_takes_its_time() -> None:
    """The manager slept in its transaction, and the store was taken for one that waits: the copy was admitted too."""
    listeners = [await RealNet().listen("127.0.0.1", 0, lambda stream: stream.close()) for _ in range(3)]
    dead, slow, copy = (listener.address for listener in listeners)
    routing, detector, service = meta_services(dead, slow, copy)
    before = dataclasses.replace(routing, nodes={NodeId(1000): routing.nodes[NodeId(1000)]})
    await service.admit(dead, lambda: before, detector, at_once)
    listeners[0].close()
    reached, go = asyncio.Event(), asyncio.Event()

    async def sleep() -> None:
        reached.set()
        await go.wait()

    first = asyncio.create_task(service.admit(slow, lambda: routing, detector, sleep))
    await reached.wait()
    second = asyncio.create_task(service.admit(copy, lambda: routing, detector, at_once))
    await service.admit("", lambda: routing, detector, at_once)  # one that serves does not wait
    await asyncio.sleep(0.01)
    assert not second.done()
    go.set()
    await first
    with pytest.raises(NodeInUse, match=f"lives at {slow}"):
        await second
    for listener in listeners[1:]:
        listener.close()


class Listening:
    """Somebody listens at every address."""

    async def connect(self, address: str, timeout_s: float) -> Any:
        class Stream:
            def close(self) -> None:
                pass

        return Stream()


def test_a_copy_is_not_admitted_for_a_silence_while_the_manager_was_suspended() -> None:
    """The request of the copy was what it met first when it went on. Nor does another process become a node then."""

    async def body(bench: Bench) -> None:
        manager = bench.manager
        manager._sole_service._net = Listening()  # type: ignore[assignment]
        cluster_id = manager._publisher.routing.cluster_id

        def admission(address: str) -> pb.AdmitStoreRequest:
            return pb.AdmitStoreRequest(cluster_id=cluster_id, store_id="aa", generation=5, sole_address=address)

        def registration(address: str, incarnation: int) -> pb.RegisterRequest:
            return pb.RegisterRequest(node_id=node, kind=pb.META, address=address, incarnation=incarnation)

        node = 0
        node = (await manager.register(registration("m:1", 5))).node_id
        await manager.admit_store(admission("m:1"))
        for _ in range(20):
            await asyncio.sleep(0.05)  # the term lasts longer than T
            await manager.heartbeat(pb.HeartbeatRequest(node_id=node, incarnation=5))
        asyncio.get_running_loop()._now += 5.0  # type: ignore[attr-defined]
        with pytest.raises(NodeInUse, match="lives at m:1"):
            await manager.admit_store(admission("m:2"))
        asyncio.get_running_loop()._now += 5.0  # type: ignore[attr-defined]
        with pytest.raises(NodeInUse, match="alive at m:1"):
            await manager.register(registration("m:3", 6))

    run(body)


class Suspending(Listening):
    """The manager is suspended while it asks at m:1, where nobody listens."""

    async def connect(self, address: str, timeout_s: float) -> Any:
        if address == "m:1":
            asyncio.get_running_loop()._now += 5.0  # type: ignore[attr-defined]
            raise ConnectionRefused("refused")
        return await super().connect(address, timeout_s)


def test_nor_for_one_while_it_asked_whether_another_service_listens() -> None:
    """The services after that one were taken for silent."""

    async def body(bench: Bench) -> None:
        manager = bench.manager
        manager._sole_service._net = Suspending()  # type: ignore[assignment]
        beats = []
        for incarnation, address in enumerate(("m:1", "m:2"), 5):
            request = pb.RegisterRequest(kind=pb.META, address=address, incarnation=incarnation)
            node_id = (await manager.register(request)).node_id
            beats.append(pb.HeartbeatRequest(node_id=node_id, incarnation=incarnation))
        for _ in range(20):
            await asyncio.sleep(0.05)  # the term lasts longer than T
            for beat in beats:
                await manager.heartbeat(beat)
        cluster_id = manager._publisher.routing.cluster_id
        copy = pb.AdmitStoreRequest(cluster_id=cluster_id, store_id="aa", generation=5, sole_address="m:3")
        with pytest.raises(NodeInUse, match="lives at m:2"):
            await manager.admit_store(copy)

    run(body)


def test_nor_by_a_manager_that_is_primary_again() -> None:
    """Another one had admitted m:2 meanwhile. It counted for one that waits beside m:1, as in the term before."""
    engine = MemoryEngine()

    async def body(bench: Bench) -> None:
        manager = bench.manager
        manager._net = Listening()  # type: ignore[assignment]
        cluster_id = manager._publisher.routing.cluster_id

        async def admit_at(address: str) -> None:
            await manager.admit_store(
                pb.AdmitStoreRequest(cluster_id=cluster_id, store_id="aa", generation=5, sole_address=address)
            )

        await manager.register(pb.RegisterRequest(kind=pb.META, address="m:1", incarnation=5))
        await admit_at("m:1")
        living, bench.living = bench.living, {}
        await take(engine, "two", clock=LOOP_CLOCK)
        manager.leading.clear()
        await manager.leading.wait()  # as soon as it has noticed that
        bench.living = living
        await asyncio.sleep(0.1)  # the storage nodes are heard
        other = await manager.register(pb.RegisterRequest(kind=pb.META, address="m:2", incarnation=6))
        for _ in range(20):
            await asyncio.sleep(0.05)  # the term lasts longer than T
            await manager.heartbeat(pb.HeartbeatRequest(node_id=other.node_id, incarnation=6))
        with pytest.raises(NodeInUse, match="lives at m:2"):
            await admit_at("m:3")

    run(body, engine)
