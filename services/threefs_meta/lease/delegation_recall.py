"""Waiting for the end of a delegation that forbids a name.

Each service that waits counts from the moment at which it has itself seen the recall: clocks are never compared. Mostly
the wait takes some milliseconds, because a holder at work learns of the recall with its next name and returns the
delegation. A holder that is dead or idle is waited for only for DELEGATION_RECALL_S.
"""

import itertools

from threefs.backoff import Backoff
from threefs.kv.engine_api import Transaction
from threefs_meta.context import Context
from threefs_meta.lease import delegation
from threefs_meta.lease.delegation import DelegationHeld

_BACKOFF = Backoff(0.001, 0.02)


async def wait_returned(context: Context, conflict: DelegationHeld) -> None:
    """Returns when the delegation has ended."""
    clock = context.clock
    if not await _recall_or_clear(context, conflict, None):
        return
    seen_s = clock.monotonic()  # after the commit: until then the holder may still hear that its delegation stands
    for attempt in itertools.count():
        await clock.sleep(_BACKOFF.limit_s(attempt))
        if not await _recall_or_clear(context, conflict, seen_s):
            return


async def _recall_or_clear(context: Context, conflict: DelegationHeld, seen_s: float | None) -> bool:
    """Recall the delegation, or end it when it is time; whether it still stands."""

    async def attempt(tx: Transaction) -> bool:
        ns = context.namespace(tx)
        inode = await ns.inode(conflict.directory)
        if inode is None or not inode.HasField("delegation") or not conflict.matches(inode.delegation):
            return False
        if not inode.delegation.recalled:
            delegation.recall(inode.delegation, ns.stamp)
            ns.put_inode_unseen(inode)
        elif seen_s is not None and delegation.may_revoke(inode.delegation, seen_s, context.clock.monotonic()):
            delegation.clear(inode)
            ns.put_inode_unseen(inode)
            return False
        return True

    return await context.transact(attempt)
