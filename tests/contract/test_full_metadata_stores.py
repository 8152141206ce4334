"""Many changes at once, while the store becomes full or falls silent: what was made is never told to have failed."""

from typing import Any

import pytest
from threefs_manager.stale_stores.metadata_store import admit
from threefs_meta.store import keys
from threefs_meta.store.identity import StoreIdentity

from tests.harness.clocks import SteppedClock
from tests.harness.many_changes import answered, create_of
from tests.harness.meta_harness import CLIENT, MetaBench
from tests.harness.seeded_random import SeededRandom
from threefs.errors import Conflict, Corrupt, MaybeCommitted, NoSpace, ThreefsError, Unavailable
from threefs.kv import retry
from threefs.kv.memory import MemoryEngine
from threefs.kv.transaction import BufferedTransaction
from threefs.rpc.methods import Method
from threefs.wire import meta_pb2 as pb


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("again", [False, True])
async def test_changes_that_may_have_been_made_do_not_fail_for_good_on_a_full_disk(
    bench: MetaBench, monkeypatch: pytest.MonkeyPatch, count: int, again: bool
) -> None:
    await bench.context.allocator.refill(count)
    commit, is_lost = bench.engine.commit, again

    async def full(attempt: BufferedTransaction) -> None:
        nonlocal is_lost
        if is_lost:
            raise NoSpace("the disk is full")
        await commit(attempt)
        is_lost = True
        raise MaybeCommitted("no answer")

    mutation = pb.Mutation(client=CLIENT, request=1000, again=again)
    request = pb.BatchRequest(mutation=mutation, changes=[create_of(f"/{number}") for number in range(count)])
    with monkeypatch.context() as patches, pytest.raises(MaybeCommitted, match="full"):
        patches.setattr(bench.engine, "commit", full)
        patches.setattr(bench.engine, "confirm", full)
        await answered(bench, request)
    assert [result.create.created for result in (await answered(bench, request)).results] == [True] * count


async def test_a_repeated_batch_is_tried_once_while_the_store_is_silent(
    bench: MetaBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each half would wait as long as the whole, and the client would not hear why in time."""
    await bench.context.allocator.refill(8)
    tries = []

    def silent() -> BufferedTransaction:
        tries.append(1)
        bench.clock.advance(5.0)
        raise Unavailable("silent")

    mutation = pb.Mutation(client=CLIENT, request=1000, again=True)
    request = pb.BatchRequest(mutation=mutation, changes=[create_of(f"/{number}") for number in range(8)])
    with monkeypatch.context() as patches, pytest.raises(MaybeCommitted, match="silent"):
        patches.setattr(bench.engine, "begin", silent)
        await answered(bench, request)
    assert len(tries) == 1


def meet_behind_half(bench: MetaBench, monkeypatch: pytest.MonkeyPatch, error: ThreefsError) -> None:
    """At most four files fit into a transaction, and only one transaction with files is committed."""
    commit, is_made = bench.engine.commit, False

    async def half(attempt: BufferedTransaction) -> None:
        nonlocal is_made
        files = sum(key.startswith(keys.ENTRIES[0]) for key in attempt.writes)
        if files > 4:
            bench.clock.advance(1.0)
            raise Conflict("by others")
        if files and is_made:
            raise error
        is_made = is_made or files > 0
        await commit(attempt)

    monkeypatch.setattr(bench.engine, "commit", half)


@pytest.mark.parametrize("error", [NoSpace("full"), Corrupt("damaged")])
async def test_a_half_that_fails_for_good_says_nothing_of_the_other_half(
    bench: MetaBench, monkeypatch: pytest.MonkeyPatch, error: ThreefsError
) -> None:
    meet_behind_half(bench, monkeypatch, error)
    request = pb.BatchRequest(mutation=bench.mutation(), changes=[create_of(f"/{number}") for number in range(8)])
    assert [result.code for result in (await answered(bench, request)).results] == [0] * 4 + [error.code] * 4
    assert await bench.names("/") == ["0", "1", "2", "3"]


async def test_a_half_that_may_succeed_later_lets_the_client_repeat_all(
    bench: MetaBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    meet_behind_half(bench, monkeypatch, Unavailable("away"))
    request = pb.BatchRequest(mutation=bench.mutation(), changes=[create_of(f"/{number}") for number in range(8)])
    with pytest.raises(MaybeCommitted, match="away"):
        await answered(bench, request)
    monkeypatch.undo()
    made = [result.create.inode.inode for result in (await answered(bench, request)).results]
    assert made == [(await bench.stat(f"/{number}")).inode for number in range(8)]


class Managers:
    def __init__(self) -> None:
        self.engine = MemoryEngine()

    async def call(self, method: Method[Any, Any], request: Any, *, timeout_s: float) -> Any:
        return await retry.run(self.engine, lambda tx: admit(tx, "c" * 32, request), replayable=True)


async def test_a_start_outlasts_a_damaged_store_that_is_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first change finds the damage out. The process ended, and met it again at each start."""
    engine, managers = MemoryEngine(), Managers()
    await StoreIdentity(engine, managers, lambda: "c" * 32, clock=SteppedClock(), random=SeededRandom(1)).admit()
    commit, errors = engine.commit, [Unavailable("damaged"), Unavailable("opened again"), MaybeCommitted("damaged")]

    async def opened_again(attempt: BufferedTransaction) -> None:
        if errors and attempt.writes:
            raise errors.pop()
        await commit(attempt)

    monkeypatch.setattr(engine, "commit", opened_again)
    service = StoreIdentity(engine, managers, lambda: "c" * 32, clock=SteppedClock(), random=SeededRandom(2))
    await service.admit()
    assert not errors and service.record.cluster_id == "c" * 32
