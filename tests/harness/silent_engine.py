"""A store in memory that makes a commit and does not answer it, once."""

from threefs.errors import MaybeCommitted
from threefs.kv.memory import MemoryEngine
from threefs.kv.transaction import BufferedTransaction


class SilentEngine(MemoryEngine):
    """The next commit that changes a key with the prefix `silent_about` is made, but not answered."""

    silent_about: bytes | None = None

    async def commit(self, attempt: BufferedTransaction) -> None:
        await super().commit(attempt)
        prefix = self.silent_about
        if prefix is not None and any(key.startswith(prefix) for key in attempt.writes):
            self.silent_about = None
            raise MaybeCommitted("no answer from the store")
