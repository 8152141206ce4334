"""Long work lets others have their turn.

Most stores answer at once, so a call that looks at very many things never waits, and nobody else is served meanwhile.
It counts what it does, and after a few milliseconds' worth of that it waits for one turn of the loop. Ordinary calls
never come that far.
"""

import asyncio

#: Steps of some microseconds each. A batch of 1024 names in a few directories makes less.
MAX_STEPS = 2048


class Turns:
    """Of one event loop: all its calls count together."""

    __slots__ = ("_steps",)

    def __init__(self) -> None:
        self._steps = 0

    def due(self) -> bool:
        """Another step is about to be made. True: `give` is to be awaited before."""
        self._steps += 1
        return self._steps >= MAX_STEPS

    async def give(self) -> None:
        self._steps = 0
        await asyncio.sleep(0)


TURNS = Turns()
