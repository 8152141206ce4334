import dataclasses

from threefs_manager.stale_stores.target_stores import StoreGenerations, lost_survivors
from threefs_manager.store.cluster_store import Store

from tests.harness.terms import take
from threefs.cluster.manager_records import SEEN, record_key
from threefs.ids import ChainId, TargetId
from threefs.kv.memory import MemoryEngine
from threefs.routing import EMPTY, Chain, ChainMember, PublicState
from threefs.wire import manager_pb2 as pb


def report(generation: int, store_id: int = 5) -> pb.TargetReport:
    return pb.TargetReport(target_id=101, store_id=store_id, generation=generation)


def seen(generation: int, store_id: int = 5) -> pb.SeenStore:
    return pb.SeenStore(target_id=101, store_id=store_id, generation=generation)


def test_a_store_that_ends_before_what_was_seen_is_an_old_copy() -> None:
    generations = StoreGenerations()
    assert not generations.staleness(report(0))
    generations.on_report(report(70), 5)
    generations.on_report(report(60), 5)  # a heartbeat that was overtaken
    assert "newest change is 69, and change 70 was reported" in generations.staleness(report(69))
    assert not generations.staleness(report(70)) and not generations.staleness(report(71))
    assert generations.newest(TargetId(101)) == seen(70) and generations.newest(TargetId(102)) is None


def test_another_store_says_nothing_of_the_one_that_is_known() -> None:
    generations = StoreGenerations()
    generations.on_report(report(70), 5)
    generations.on_report(report(900, store_id=6), 5)
    assert generations.newest(TargetId(101)) == seen(70)
    assert not generations.staleness(report(1, store_id=6)), "it is refused for what it is: another store"
    generations.on_report(report(3, store_id=6), 6)
    assert generations.newest(TargetId(101)) == seen(3, store_id=6)


def test_a_target_that_is_filled_anew_is_measured_anew() -> None:
    generations = StoreGenerations()
    generations.on_report(report(70), 5)
    generations.reset(report(20))
    assert not generations.staleness(report(20)) and generations.staleness(report(19))


def test_a_target_of_which_it_is_lost_what_was_seen_does_not_serve_alone_before_it_is_filled_anew() -> None:
    generations = StoreGenerations([], [TargetId(101)])
    generations.on_report(report(70), 5)
    assert "may be an older copy" in generations.staleness(report(70))
    assert not generations.drain_unsaved(), "the next manager must not take it for what was seen"
    generations.reset(report(80))
    assert not generations.staleness(report(80)) and generations.drain_unsaved() == [seen(80)]


def test_what_was_seen_of_targets_is_needed_only_of_those_that_may_serve_alone() -> None:
    states = (PublicState.LASTSRV, PublicState.LASTSRV, PublicState.WAITING, PublicState.SERVING)
    ids = [TargetId(number) for number in range(101, 105)]
    chain = Chain(ChainId(1), 7, tuple(map(ChainMember, ids, states)))
    known = dataclasses.replace(EMPTY, chains={ChainId(1): chain})
    assert lost_survivors([*ids[1:], TargetId(999)], known) == {102, 104}


def test_a_lost_record_of_a_target_matters_until_it_gets_a_lease() -> None:
    """When all power was lost meanwhile it gets none, and its disk may be an older copy."""
    generations = StoreGenerations(lost=[TargetId(101)])
    generations.on_report(report(60), 5)
    assert "damaged" in generations.staleness(report(60))
    generations.on_lease(report(60))
    assert not generations.staleness(report(60)) and "newest change is 59" in generations.staleness(report(59))
    generations.on_lease(report(59))
    assert generations.newest(TargetId(101)) == seen(60)


async def test_a_damaged_record_of_a_store_keeps_no_manager_from_serving() -> None:
    engine = MemoryEngine()
    store = Store(engine, await take(engine, "one"))
    await store.save_generations([pb.SeenStore(target_id=n, store_id=5, generation=n) for n in (1, 2)])
    tx = engine.begin()
    tx.set(record_key(SEEN, 1), b"\1damaged")
    await tx.commit()
    assert await store.load_generations() == ([pb.SeenStore(target_id=2, store_id=5, generation=2)], [1])


def test_only_what_has_changed_is_to_be_saved() -> None:
    generations = StoreGenerations([seen(70)])
    assert generations.staleness(report(69)), "it was written down in an earlier term"
    generations.on_report(report(70), 5)
    assert generations.drain_unsaved() == []
    generations.on_report(report(71), 5)
    unsaved = generations.drain_unsaved()
    assert unsaved == [seen(71)] and generations.drain_unsaved() == []
    generations.restore_unsaved(unsaved)
    assert generations.drain_unsaved() == [seen(71)]


async def test_what_was_seen_of_stores_outlives_the_manager() -> None:
    engine = MemoryEngine()
    store = Store(engine, await take(engine, "one"))
    found = [pb.SeenStore(target_id=n, store_id=5, generation=n) for n in (1, 2)]
    await store.save_generations(found)
    version = (await store.load()).version
    assert await Store(engine, await take(engine, "two")).load_generations() == (found, [])
    assert (await store.load()).version == version, "nobody who follows the routing is woken"
