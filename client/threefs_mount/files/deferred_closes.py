"""Sessions of closed files end later, in batches: else the program that closes would wait for a commit."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from threefs_client.context import ClientContext

from threefs.background import BackgroundTasks
from threefs.errors import ThreefsError, Unavailable
from threefs.rpc import methods
from threefs_mount.files.open_file import OpenFile

#: A batch is sent after this time, or when there are so many.
CLOSE_DELAY_S = 0.1
_BATCH = 64
#: With this many closed files, the next close waits for the end of its session.
MAX_DEFERRED = 256
_MAX_BATCHES = 2  # in flight


class DeferredCloses:
    def __init__(self, context: ClientContext, remove: Callable[[OpenFile], None]) -> None:
        """`remove` forgets a file that has no handles any more."""
        self._context = context
        self._remove = remove
        self._files: dict[int, OpenFile] = {}  # inode -> file without writers whose session is still open
        self._timer: asyncio.TimerHandle | None = None
        self._batches = BackgroundTasks()

    @property
    def is_full(self) -> bool:
        return len(self._files) >= MAX_DEFERRED

    def add(self, file: OpenFile) -> None:
        """End the session of a clean file without writers soon, unless it gets a writer before."""
        self._files[file.inode.inode] = file
        if len(self._files) >= _BATCH:
            self._send()
        else:
            self._schedule()

    async def stop(self) -> None:
        """Wait for the batches in flight. Sessions that were not in one are still open."""
        if self._timer is not None:
            self._timer.cancel()
        await self._batches.join()

    def _schedule(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(CLOSE_DELAY_S, self._send)

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._files and len(self._batches) < _MAX_BATCHES:
            files, self._files = self._files, {}
            task = self._batches.attempt("closing of files", self._close(list(files.values())))
            task.add_done_callback(self._on_batch_closed)

    def _on_batch_closed(self, _: object) -> None:
        if self._timer is None:  # files whose timer ended during the batch
            self._send()

    async def _close(self, files: list[OpenFile]) -> None:
        """End the sessions of the files, in one message and one commit."""
        ready = [file for file in files if not file.session_lock.locked()]
        for file in ready:
            await file.session_lock.acquire()
        try:
            await self._close_locked([file for file in ready if file.has_session and not file.writable_handles])
        finally:
            for file in ready:
                file.session_lock.release()
        for file in files:
            if file.has_session and not file.writable_handles:  # an open has its lock at present
                self._files[file.inode.inode] = file
                self._schedule()

    async def _close_locked(self, files: list[OpenFile]) -> None:
        """The caller holds the session locks. Everything is synced, so a failed end is only repeated, not reported."""
        if not files:
            return
        requests = [file.close_request() for file in files]
        outcomes: Sequence[Any] = [Unavailable("the call was cancelled")] * len(files)
        try:
            calls = [(methods.CLOSE, request) for request in requests]
            outcomes = await self._context.meta.send_changes(calls, timeout_s=self._context.options.timeout_s)
        except ThreefsError as error:
            outcomes = [error] * len(files)
        finally:
            for file, request, outcome in zip(files, requests, outcomes, strict=True):
                file.session_closed(request, outcome if isinstance(outcome, ThreefsError) else None)
                if not file.open_handles:
                    self._remove(file)
