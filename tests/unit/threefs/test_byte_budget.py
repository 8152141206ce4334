import asyncio

from threefs.byte_budget import ByteBudget


def test_the_byte_budget_bounds_and_keeps_order() -> None:
    async def work() -> list[str]:
        budget, seen = ByteBudget(10), list[str]()

        async def user(name: str, size: int) -> None:
            await budget.take(size)
            seen.append(name)

        await user("first", 8)
        tasks = [asyncio.create_task(user(name, size)) for name, size in [("huge", 50), ("small", 1)]]
        await asyncio.sleep(0)
        assert seen == ["first"], "the small one does not overtake"
        budget.give(8)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert seen == ["first", "huge"]
        tasks[1].cancel()
        budget.give(50)
        await asyncio.wait(tasks)
        await user("last", 10)
        return seen

    assert asyncio.run(work()) == ["first", "huge", "last"]
