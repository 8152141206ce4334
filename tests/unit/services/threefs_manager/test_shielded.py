"""A call that is cancelled does not leave half of its work undone."""

import asyncio

import pytest
from threefs_manager.shielded import shielded


async def test_what_is_stored_is_published_although_the_caller_is_gone() -> None:
    steps: list[str] = []
    stored = asyncio.Event()

    async def handler(request: str) -> str:
        steps.append(f"store {request}")
        await stored.wait()
        steps.append("publish")
        return "done"

    call = asyncio.ensure_future(shielded(handler)("x"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.sleep(0)
    assert steps == ["store x"]
    stored.set()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert steps == ["store x", "publish"]
