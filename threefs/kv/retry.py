"""Runs a transaction: it is repeated with growing random pauses until it commits."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from threefs.backoff import Backoff
from threefs.env.clock import CLOCK, Clock
from threefs.env.random import RANDOM, Random
from threefs.errors import Conflict, MaybeCommitted, Retry, ThreefsError, Throttled, TooOld, Unavailable
from threefs.kv.engine_api import Engine, Transaction

T = TypeVar("T")

#: How long a transaction is repeated, unless the caller says otherwise.
TIMEOUT_S = 10.0
#: Conflicting transactions often began together, so all of each pause is drawn.
_BACKOFF = Backoff(0.002, 0.5, jitter=1.0)


@dataclass(slots=True)
class Outcome:
    """What is known of a change, over all attempts to make it."""

    maybe_committed: bool = False  # one of them may have been committed, or may be yet
    is_refused: bool = field(default=False, init=False)  # by the function, in the last attempt

    def check(self, error: ThreefsError) -> None:
        """Raise MaybeCommitted in place of an error that says that there was no effect, if there may have been one."""
        if self.maybe_committed and error.retry is not Retry.UNKNOWN:
            raise MaybeCommitted(error.message) from error


async def run(
    engine: Engine,
    function: Callable[[Transaction], Awaitable[T]],
    *,
    clock: Clock = CLOCK,
    random: Random = RANDOM,
    timeout_s: float = TIMEOUT_S,
    replayable: bool = False,
    outcome: Outcome | None = None,
) -> T:
    """Call `function` with a fresh transaction, commit, and return what it returned.

    Conflict, TooOld and Throttled cause another attempt. MaybeCommitted does so only if `replayable`: then `function`
    must find out in its transaction whether an earlier attempt was committed. After `timeout_s` the last error is
    raised. An error of `function` ends it without a commit, but only once everything that it read is durable, because a
    crash must not undo the reason for the error.

    If an attempt may have been committed, `function` finds out whether it was. Any other error of a later attempt
    becomes MaybeCommitted. `outcome` is given if the change takes several calls of this.
    """
    outcome = outcome or Outcome()
    deadline = clock.monotonic() + timeout_s
    attempts = 0
    while True:
        try:
            outcome.is_refused = False
            result = await _attempt(engine.begin(), function, outcome)
            engine.transaction_counts.committed += 1
            return result
        except (Conflict, TooOld, Throttled, MaybeCommitted) as error:
            engine.transaction_counts.retried[type(error).__name__] += 1
            outcome.maybe_committed = outcome.maybe_committed or isinstance(error, MaybeCommitted)
            pause = _BACKOFF.pause_s(attempts, random)
            if clock.monotonic() + pause > deadline or (isinstance(error, MaybeCommitted) and not replayable):
                outcome.check(error)
                raise
        except ThreefsError as error:
            if not outcome.is_refused:
                outcome.check(error)
            raise
        await clock.sleep(pause)
        attempts += 1


async def _attempt(transaction: Transaction, function: Callable[[Transaction], Awaitable[T]], outcome: Outcome) -> T:
    try:
        result = await function(transaction)
    except (Conflict, TooOld, Throttled, MaybeCommitted):
        raise
    except ThreefsError as error:
        await transaction.confirm()
        outcome.is_refused = not isinstance(error, Unavailable)  # which a store raises that cannot be read
        raise
    await transaction.commit()
    return result
