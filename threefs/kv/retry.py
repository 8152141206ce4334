"""The usual way to run a transaction: again and again, with growing random pauses, until it commits."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from threefs.env.clock import CLOCK, Clock
from threefs.env.random import RANDOM, Random
from threefs.errors import Conflict, MaybeCommitted, ThreefsError, Throttled, TooOld
from threefs.kv.engine_api import Engine, Transaction

T = TypeVar("T")

FIRST_PAUSE_S = 0.002
LONGEST_PAUSE_S = 0.5


async def run(
    engine: Engine,
    function: Callable[[Transaction], Awaitable[T]],
    *,
    clock: Clock = CLOCK,
    random: Random = RANDOM,
    timeout_s: float = 10.0,
    replayable: bool = False,
) -> T:
    """Call `function` with a fresh transaction, commit, and return what it returned.

    Conflict, TooOld and Throttled start over. MaybeCommitted does so only if `replayable`: then `function` must find
    out for itself, in the same transaction, whether it has been done already. After `timeout_s` the last error is
    raised. An error of `function` ends it without a commit, once what it has read is durable: the reason for an error
    must not vanish in a crash.
    """
    deadline = clock.monotonic() + timeout_s
    longest = FIRST_PAUSE_S
    while True:
        try:
            result = await _attempt(engine.begin(), function)
            engine.tally.done += 1
            return result
        except (Conflict, TooOld, Throttled, MaybeCommitted) as error:
            engine.tally.again[type(error).__name__] += 1
            pause = random.uniform(0.0, longest)
            if clock.monotonic() + pause > deadline or (isinstance(error, MaybeCommitted) and not replayable):
                raise
        await clock.sleep(pause)
        longest = min(2 * longest, LONGEST_PAUSE_S)


async def _attempt(transaction: Transaction, function: Callable[[Transaction], Awaitable[T]]) -> T:
    try:
        result = await function(transaction)
    except (Conflict, TooOld, Throttled, MaybeCommitted):
        raise
    except ThreefsError:
        await transaction.confirm()
        raise
    await transaction.commit()
    return result
