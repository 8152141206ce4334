"""Waits for a future that goes on when its waiter is cancelled."""

import asyncio
from typing import TypeVar

T = TypeVar("T")


async def shielded(future: "asyncio.Future[T]") -> T:
    """The result of a future that others wait for as well, or that has to end by itself. As asyncio.shield, which from
    Python 3.14 on reports as an error of the program what the future fails with once a waiter was cancelled. Nor does
    the loop report that nobody has asked for it."""
    if not future.done():
        ended = asyncio.get_running_loop().create_future()

        def wake(_: object) -> None:
            if not ended.done():
                ended.set_result(None)

        future.add_done_callback(wake)
        try:
            await ended
        except asyncio.CancelledError:
            future.add_done_callback(_retrieve_failure)  # it may have had no other waiter
            raise
        finally:
            future.remove_done_callback(wake)
    return future.result()


def _retrieve_failure(future: "asyncio.Future[T]") -> None:
    if not future.cancelled():
        future.exception()
