import itertools

import pytest

from tests.harness.clocks import SteppedClock
from threefs.env.random import RealRandom
from threefs.errors import Conflict, MaybeCommitted, NoSpace, NotFound, ThreefsError, Throttled, TooLarge, Unavailable
from threefs.kv import retry
from threefs.kv.engine_api import Transaction
from threefs.kv.memory import MemoryEngine
from threefs.kv.transaction import BufferedTransaction


class Highest(RealRandom):
    def uniform(self, low: float, high: float) -> float:
        return high


async def test_conflicts_are_retried_with_pauses_that_double_up_to_a_limit() -> None:
    clock = SteppedClock()
    moments: list[float] = []

    async def body(tx: Transaction) -> str:
        moments.append(clock.monotonic())
        if len(moments) < 12:
            raise [Conflict, Throttled][len(moments) % 2]
        return "done"

    engine = MemoryEngine(clock=clock)
    assert await retry.run(engine, body, clock=clock, random=Highest(), timeout_s=60.0) == "done"
    pauses = [later - sooner for sooner, later in itertools.pairwise(moments)]
    assert pauses[:3] == pytest.approx([0.002, 0.004, 0.008])
    assert pauses[-2:] == pytest.approx([0.5, 0.5])


async def test_the_deadline_ends_the_attempts_with_the_last_error() -> None:
    clock = SteppedClock()

    async def body(tx: Transaction) -> None:
        raise Conflict

    start = clock.monotonic()
    with pytest.raises(Conflict):
        await retry.run(MemoryEngine(clock=clock), body, clock=clock, random=Highest(), timeout_s=3.0)
    assert 2.0 < clock.monotonic() - start <= 3.0


@pytest.mark.parametrize("error", [NotFound, TooLarge, KeyError])
async def test_other_errors_end_it_at_once_and_nothing_is_written(error: type[Exception]) -> None:
    calls = 0

    async def body(tx: Transaction) -> None:
        nonlocal calls
        calls += 1
        tx.set(b"a", b"1")
        raise error("no")

    engine = MemoryEngine()
    with pytest.raises(error):
        await retry.run(engine, body)
    assert await engine.begin().get(b"a") is None
    assert calls == 1


async def once(tx: Transaction) -> bool:
    """Replayable: finds out whether it was done before."""
    done = await tx.get(b"done") is not None
    if not done:
        tx.set(b"done", b"")
        tx.set(b"n", b"%d" % (int(await tx.get(b"n") or 0) + 1))
    return done


async def test_an_unknown_outcome_is_retried_only_when_that_is_safe() -> None:
    broken = MemoryEngine(random=RealRandom(), unknown_rate=1.0)
    with pytest.raises(MaybeCommitted):
        await retry.run(broken, once)
    for _ in range(50):
        engine = MemoryEngine(random=RealRandom(), unknown_rate=0.5, conflict_rate=0.3)
        await retry.run(engine, once, clock=SteppedClock(), timeout_s=60.0, replayable=True)
        assert await engine.begin().get(b"n") == b"1"


class LostAnswer(MemoryEngine):
    """It applies the first commit, and says that it may have. Then it answers the calls of that name with an error."""

    def __init__(self, then: str, error: ThreefsError) -> None:
        super().__init__()
        self._then = then
        self._error = error
        self._is_lost = False

    def _meet(self, call: str) -> None:
        if self._is_lost and self._then == call:
            raise self._error

    def begin(self) -> BufferedTransaction:
        self._meet("begin")
        return super().begin()

    async def arrive(self) -> None:
        self._meet("read")
        await super().arrive()

    async def confirm(self, attempt: BufferedTransaction) -> None:
        self._meet("confirm")
        await super().confirm(attempt)

    async def commit(self, attempt: BufferedTransaction) -> None:
        await super().commit(attempt)
        self._is_lost = True
        raise MaybeCommitted("no answer")


@pytest.mark.parametrize(
    ("then", "error"),
    [
        ("begin", Unavailable("away")),
        ("read", Unavailable("away")),
        ("confirm", NoSpace("full")),
        ("confirm", Conflict("again")),
    ],
)
async def test_what_may_have_been_done_ends_with_no_error_that_says_that_nothing_was(
    then: str, error: ThreefsError
) -> None:
    engine = LostAnswer(then, error)
    with pytest.raises(MaybeCommitted, match=error.message):
        await retry.run(engine, once, clock=SteppedClock(), timeout_s=1.0, replayable=True)


async def test_an_error_of_the_function_tells_also_of_an_attempt_that_may_have_been_done() -> None:
    async def refused(tx: Transaction) -> None:
        if await once(tx):
            raise NotFound("it is done")

    with pytest.raises(NotFound, match="done"):
        await retry.run(LostAnswer("", NotFound()), refused, replayable=True)
    with pytest.raises(MaybeCommitted, match="full"):
        await retry.run(LostAnswer("confirm", NoSpace("full")), refused, replayable=True)


async def test_what_may_have_been_done_is_known_over_several_calls() -> None:
    outcome = retry.Outcome()
    with pytest.raises(MaybeCommitted, match="no answer"):
        await retry.run(LostAnswer("", NotFound()), once, outcome=outcome)
    with pytest.raises(MaybeCommitted, match="away"):
        engine = LostAnswer("begin", Unavailable("away"))
        engine._is_lost = True
        await retry.run(engine, once, outcome=outcome)
