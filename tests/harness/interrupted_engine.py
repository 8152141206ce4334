"""A store in memory that lets something else happen just before it makes a commit, once."""

from collections.abc import Awaitable, Callable

from threefs.kv.memory import MemoryEngine
from threefs.kv.transaction import BufferedTransaction


class InterruptedEngine(MemoryEngine):
    """Before the next change of a key with the prefix `interrupted_at` is made, `meanwhile` is called."""

    interrupted_at = b""
    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def commit(self, attempt: BufferedTransaction) -> None:
        prefix = self.interrupted_at
        if self.meanwhile is not None and any(key.startswith(prefix) for key in attempt.writes):
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        await super().commit(attempt)
