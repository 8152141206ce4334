import asyncio
from collections.abc import Callable, Set

import pytest

from tests.harness.memory_storage import MemoryCluster, without_head
from tests.harness.virtual_time import run_virtual
from threefs.cluster.attempts_at_heads import Attempt, AttemptsAtHeads
from threefs.errors import DeadlineExceeded
from threefs.ids import ChainId

ONE, OTHER = ChainId(1), ChainId(2)


def lasted_s(
    meanwhile: Callable[[MemoryCluster], object],
    *,
    chains: Set[ChainId] = frozenset({ONE}),
    answer_s: float = 60.0,
    put_out: bool = True,
) -> float:
    """How long an attempt at these chains lasts, if `meanwhile` happens after a second."""
    cluster = MemoryCluster()
    attempts = AttemptsAtHeads(cluster)

    async def work() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        loop.call_later(1.0, meanwhile, cluster)
        if put_out:
            with pytest.raises(DeadlineExceeded, match="goes on without it"):
                async with Attempt(attempts, chains, cluster.routing):
                    await asyncio.sleep(answer_s)
        else:
            async with Attempt(attempts, chains, cluster.routing):
                await asyncio.sleep(answer_s)
        assert not attempts.attempts
        return loop.time() - began

    return run_virtual(work())


def put_out(cluster: MemoryCluster, chain: ChainId = ONE) -> None:
    cluster.learn(without_head(cluster.routing, chain)[1])


def test_an_attempt_ends_when_its_head_is_put_out() -> None:
    assert lasted_s(put_out) == pytest.approx(1.5)


def test_it_goes_on_when_another_chain_changes() -> None:
    assert lasted_s(lambda cluster: put_out(cluster, OTHER), put_out=False) == pytest.approx(60)


def test_it_goes_on_while_it_has_a_chain_whose_head_has_stayed() -> None:
    """A move takes a head out of one chain, and the process works: much of a large request would be sent again."""
    assert lasted_s(put_out, chains={ONE, OTHER}, put_out=False) == pytest.approx(60)

    def both(cluster: MemoryCluster) -> None:
        put_out(cluster)
        put_out(cluster, OTHER)

    assert lasted_s(both, chains={ONE, OTHER}) == pytest.approx(1.5)


def test_an_answer_that_comes_soon_is_heard() -> None:
    assert lasted_s(put_out, answer_s=1.4, put_out=False) == pytest.approx(1.4)


def test_more_changes_do_not_put_off_the_end() -> None:
    def twice(cluster: MemoryCluster) -> None:
        put_out(cluster)
        asyncio.get_running_loop().call_later(0.4, put_out, cluster, OTHER)

    assert lasted_s(twice) == pytest.approx(1.5)


def test_a_head_that_was_put_out_before_the_attempt_begins() -> None:
    cluster = MemoryCluster()
    attempts, before = AttemptsAtHeads(cluster), cluster.routing
    put_out(cluster)

    async def work() -> None:
        async with Attempt(attempts, {ONE}, before):
            await asyncio.sleep(60)

    with pytest.raises(DeadlineExceeded):
        run_virtual(work())


def test_an_error_of_the_attempt_is_its_own() -> None:
    cluster = MemoryCluster()

    async def work() -> None:
        async with Attempt(AttemptsAtHeads(cluster), {ONE}, cluster.routing):
            raise DeadlineExceeded("slow")

    with pytest.raises(DeadlineExceeded, match="slow"):
        run_virtual(work())
