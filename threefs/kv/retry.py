"""Runs a transaction: it is repeated with growing random pauses until it commits."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from threefs.backoff import Backoff
from threefs.env.clock import CLOCK, Clock
from threefs.env.random import RANDOM, Random
from threefs.errors import Conflict, MaybeCommitted, ThreefsError, Throttled, TooOld
from threefs.kv.engine_api import Engine, Transaction

T = TypeVar("T")

#: How long a transaction is repeated, unless the caller says otherwise.
TIMEOUT_S = 10.0
#: Conflicting transactions often began together, so all of each pause is drawn.
_BACKOFF = Backoff(0.002, 0.5, jitter=1.0)


async def run(
    engine: Engine,
    function: Callable[[Transaction], Awaitable[T]],
    *,
    clock: Clock = CLOCK,
    random: Random = RANDOM,
    timeout_s: float = TIMEOUT_S,
    replayable: bool = False,
) -> T:
    """Call `function` with a fresh transaction, commit, and return what it returned.

    Conflict, TooOld and Throttled cause another attempt. MaybeCommitted does so only if `replayable`: then `function`
    must find out in its transaction whether an earlier attempt was committed. After `timeout_s` the last error is
    raised. An error of `function` ends it without a commit, but only once everything that it read is durable, because a
    crash must not undo the reason for the error.
    """
    deadline = clock.monotonic() + timeout_s
    attempts = 0
    while True:
        try:
            result = await _attempt(engine.begin(), function)
            engine.transaction_counts.committed += 1
            return result
        except (Conflict, TooOld, Throttled, MaybeCommitted) as error:
            engine.transaction_counts.retried[type(error).__name__] += 1
            pause = _BACKOFF.pause_s(attempts, random)
            if clock.monotonic() + pause > deadline or (isinstance(error, MaybeCommitted) and not replayable):
                raise
        await clock.sleep(pause)
        attempts += 1


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
