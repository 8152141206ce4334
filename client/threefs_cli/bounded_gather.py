"""Many things at once, but never more than so many."""

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from typing import Any


async def run_all(jobs: Iterable[Coroutine[Any, Any, object]], width: int) -> None:
    """Run coroutines as they come out of `jobs`, at most `width` at a time. The first error ends all, and is raised."""
    rest = iter(jobs)
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(width):
                group.create_task(_worker(rest))
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def _worker(rest: Iterator[Coroutine[Any, Any, object]]) -> None:
    for job in rest:
        await job
