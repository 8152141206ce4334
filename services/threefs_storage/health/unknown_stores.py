"""Marks of stores that a manager did not know: it was restored from a backup of before their targets were made.

The next backup that is restored may have such a target in its table, while the newest version of its chain, that of the
manager before, goes on without it. This looks like the end of a move, after which a store is deleted. But no other
target has to have what is in the marked one. So it stays on the disk until its target has had a lease again: from then
on it has what its chain has.
"""

import structlog

from threefs.errors import ThreefsError
from threefs_storage.engine.engine import ChunkEngine

_NAME = "unknown"
_LOG = structlog.get_logger()


async def mark(engine: ChunkEngine) -> None:
    """Mark the store durably. One that takes no more changes stays as it is."""
    if is_marked(engine):
        return
    try:
        await engine.keep_note(_NAME, b"")
    except ThreefsError as error:
        _LOG.warning("a store that the manager does not know cannot be marked", error=str(error))


def is_marked(engine: ChunkEngine) -> bool:
    """A mark that cannot be read counts."""
    try:
        return engine.note(_NAME) is not None
    except ThreefsError:
        return True


def unmark(engine: ChunkEngine) -> None:
    """Not durable at once."""
    try:
        engine.put_note(_NAME, None)
    except ThreefsError as error:
        _LOG.warning("the mark of a store cannot be removed", error=str(error))
