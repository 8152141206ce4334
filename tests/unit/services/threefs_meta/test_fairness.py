import asyncio

from threefs_meta.fairness import MAX_STEPS, Turns


def test_long_work_lets_others_go_on_and_short_work_does_not_stop() -> None:
    async def main() -> None:
        turns = Turns()
        others = 0

        async def other() -> None:
            nonlocal others
            while True:
                others += 1
                await asyncio.sleep(0)

        async def work(steps: int) -> int:
            before = others
            for _ in range(steps):
                if turns.due():
                    await turns.give()
            return others - before

        task = asyncio.create_task(other())
        await asyncio.sleep(0)
        assert await work(MAX_STEPS - 1) == 0
        assert await work(1) == 1, "it counts on from one call to the next"
        assert await work(10 * MAX_STEPS) == 10
        task.cancel()

    asyncio.run(main())
