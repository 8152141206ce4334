"""Terms of managers, for tests of what they write."""

from threefs_manager.election import Election, Epoch

from threefs.env.clock import CLOCK, Clock
from threefs.env.random import RANDOM, Random
from threefs.kv.engine_api import Engine


async def take(engine: Engine, holder: str, *, clock: Clock = CLOCK, random: Random = RANDOM) -> Epoch:
    """The next epoch, without waiting for the end of the one before."""
    return await Election(engine, holder, length_s=1.0, exclusive=True, clock=clock, random=random).campaign()
