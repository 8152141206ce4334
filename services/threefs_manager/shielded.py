"""Handlers that go on to their end although their call is cancelled."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from threefs.env.disk import run_to_completion


def shielded(handler: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
    """Run the handler to its end even if its call is cancelled: what is stored has to be published."""

    async def answer(request: Any) -> Any:
        return await run_to_completion(asyncio.ensure_future(handler(request)))

    return answer
