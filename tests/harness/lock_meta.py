"""A meta service that knows locks and leases, and nothing else."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from tests.harness.memory_cluster import MemoryFiles
from tests.harness.virtual_time import run_virtual
from threefs.errors import ConnectionLost, Locked
from threefs.wire import meta_pb2 as pb


class LockMeta:
    """Whole-file locks, exclusive ones only, by owner."""

    def __init__(self) -> None:
        self.holder = 0
        self.lease = 1
        self.requests: list[Any] = []
        self.error: BaseException | None = None
        self.delay_s = 0.0  # of each answer
        self.is_away = False  # it may do what it is asked for, and does not say so

    async def answer(self, name: str, request: Any) -> Any:
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        self.requests.append(request)
        if self.is_away:
            raise ConnectionLost("no answer")
        if name == "RenewLease":
            return pb.RenewLeaseReply(lease=self.lease)
        lock = request.lock
        if name == "QueryLock":
            held = pb.FileLock(type=pb.EXCLUSIVE, owner=self.holder, pid=9)
            return pb.QueryLockReply(conflict=held if self.holder not in (0, lock.owner) else None)
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        if self.holder not in (0, lock.owner):
            if lock.type != pb.UNLOCK:
                raise Locked
            return pb.LockReply()
        self.holder = 0 if lock.type == pb.UNLOCK else lock.owner
        return pb.LockReply(lease=self.lease if self.holder else 0, held=int(self.holder != 0))


class HangingMeta(LockMeta):
    """It may hang with what it is asked for, and carry it out later. What it has carried out it does not do again."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs = False  # with the next lock or unlock
        self._hung: list[Any] = []
        self._outcomes: dict[int, Any] = {}

    async def answer(self, name: str, request: Any) -> Any:
        if name == "Lock" and self.hangs:
            self.hangs = False
            self._hung.append(type(request).FromString(request.SerializeToString()))
            await asyncio.Event().wait()
        return await self._once(name, request)

    async def _once(self, name: str, request: Any) -> Any:
        if name != "Lock":
            return await super().answer(name, request)
        number = request.mutation.request
        if number not in self._outcomes:
            try:
                self._outcomes[number] = await super().answer(name, request)
            except Locked as error:
                if not request.mutation.again:
                    raise
                self._outcomes[number] = error
        if isinstance(self._outcomes[number], Locked):
            raise self._outcomes[number]
        return self._outcomes[number]

    async def go_on(self) -> None:
        for request in self._hung:
            with contextlib.suppress(Locked):
                await self._once("Lock", request)


def play(scene: Callable[[MemoryFiles, Any], Awaitable[None]], kind: type[LockMeta] = LockMeta) -> None:
    async def run() -> None:
        files = MemoryFiles()
        meta = kind()
        files.peers.meta = meta  # type: ignore[assignment]
        await scene(files, meta)
        assert files.context.lease._holders == 0, "what was entered was left"
        await files.context.lease.close()

    run_virtual(run())
