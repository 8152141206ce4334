"""A store in memory that makes a commit and does not answer it, once."""

from collections.abc import Awaitable, Callable

from threefs.errors import MaybeCommitted
from threefs.kv.memory import MemoryEngine
from threefs.kv.transaction import BufferedTransaction


class SilentEngine(MemoryEngine):
    """The next commit that changes a key with the prefix `silent_about` is made, but not answered. `after_silence` is
    what happens before its caller is told so."""

    silent_about: bytes | None = None
    after_silence: Callable[[], Awaitable[None]] | None = None

    async def commit(self, attempt: BufferedTransaction) -> None:
        await super().commit(attempt)
        prefix = self.silent_about
        if prefix is not None and any(key.startswith(prefix) for key in attempt.writes):
            self.silent_about = None
            if self.after_silence is not None:
                await self.after_silence()
            raise MaybeCommitted("no answer from the store")
