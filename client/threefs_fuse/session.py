"""The conversation with the kernel about one mount, on the event loop: read requests, have them answered, answer.

What a method answers at once is sent in the step in which the request came; the rest gets a task each. The kernel sends
at most so many requests as programs wait, and `Wishes.background` for which nobody waits.
"""

import asyncio
import errno
import os
import struct
from collections.abc import Awaitable, Callable
from types import CoroutineType
from typing import Any, NamedTuple

import structlog

from threefs.env.eager import StartedCoroutine
from threefs.env.worker import ThreadWorker
from threefs_fuse import dispatch, init_handshake, protocol, replies, requests, signals
from threefs_fuse.dispatch import Arguments, Operation
from threefs_fuse.filesystem import FuseFileSystem
from threefs_fuse.init_handshake import SessionOptions
from threefs_fuse.protocol import Feature, Op
from threefs_fuse.replies import Parts
from threefs_fuse.requests import Caller

_LOG = structlog.get_logger()

_BUFFER_BYTES = protocol.HEAD_BYTES + protocol.MAX_PAYLOAD_BYTES
#: So many requests are read before the rest of the loop has its turn.
_BURST = 64
#: Writes that wait keep their buffer. With so many of them nothing is read until one has been answered.
_MAX_BUFFERS = 64
_MAX_FREE_BUFFERS = 8
#: A program that goes on waiting after a signal may get a deadly one.
_SIGNAL_POLL_S = 0.5
_MAX_NOTICES = 4
_UNANSWERED = (Op.FORGET, Op.BATCH_FORGET, Op.INTERRUPT)


_new_tuple = tuple.__new__  # three times as quick as the constructor of a named tuple


class _Running(NamedTuple):
    """A request that is being answered."""

    task: "asyncio.Task[None]"
    operation: Operation
    arguments: Arguments
    thread: int


class Session:
    """Owns `fd`, an open /dev/fuse that is mounted. `ended` is done after the unmount, or with what went wrong."""

    def __init__(self, fd: int, filesystem: FuseFileSystem, options: SessionOptions) -> None:
        self.features = Feature(0)
        self._fd = fd
        self._filesystem = filesystem
        self._options = options
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._methods: dict[int, tuple[Operation, Callable[..., Any]]] = {}
        self._running: dict[int, _Running] = {}
        self._free: list[bytearray] = []
        self._buffers = 0  # lent to writes
        self._reading = self._ending = self._draining = False
        self._thread = ThreadWorker("notices", _MAX_NOTICES)  # for those that the kernel takes its time for
        self._notifying: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        os.set_blocking(self._fd, False)
        self._listen()

    def _listen(self) -> None:
        if not (self._reading or self._draining or self.ended.done()):
            self._reading = True
            self._loop.add_reader(self._fd, self._readable)

    def _pause(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def _end(self, error: OSError | None) -> None:
        self._pause()
        if not self.ended.done():
            if error is None:
                self.ended.set_result(None)
            else:
                self.ended.set_exception(error)

    async def drain(self) -> None:
        """Take no more requests, and finish what has been begun."""
        self._ending = True
        while self._notifying and not self.ended.done():  # the kernel may wait for answers before it takes them
            await asyncio.wait(self._notifying)
        self._draining = True
        self._pause()
        await asyncio.sleep(0)  # what was read last has begun then
        for running in list(self._running.values()):
            if running.operation.cancellable(running.arguments):
                running.task.cancel()
        await asyncio.gather(*(running.task for running in self._running.values()), return_exceptions=True)

    async def close(self) -> None:
        """Let go of the kernel: who still waits there gets ENOTCONN."""
        await self.drain()
        os.close(self._fd)
        if not self._notifying:
            await self._thread.close()

    def waiting(self, code: Op) -> int:
        """How many requests of that kind have been read and not been answered."""
        return sum(running.operation is self._methods[code][0] for running in self._running.values())

    # ---- requests ----

    def _readable(self) -> None:
        for _ in range(_BURST):
            if self._buffers >= _MAX_BUFFERS:
                self._pause()
                return
            buffer = self._free.pop() if self._free else bytearray(_BUFFER_BYTES)
            try:
                size = os.readv(self._fd, (buffer,))
            except OSError as error:
                self._free.append(buffer)
                if error.errno == errno.EAGAIN:
                    return
                if error.errno in (errno.EINTR, errno.ENOENT):
                    continue  # the request was taken back in the same moment
                self._end(None if error.errno in (errno.ENODEV, errno.ECONNABORTED) else error)
                return
            self._handle_request(buffer, size)

    def _handle_request(self, buffer: bytearray, size: int) -> None:
        """One request. The buffer is free again when a write is answered, and for all others at once."""
        length, code, number, inode, uid, gid, pid, extended, _ = requests.HEADER.unpack_from(buffer)
        kept = False
        try:
            if length != size:
                raise requests.Malformed("a request does not have the length that it says")
            view = memoryview(buffer)[requests.HEADER.size : size]
            groups: tuple[int, ...] = ()
            if extended:
                groups = requests.groups(view[len(view) - 8 * extended :])
                view = view[: len(view) - 8 * extended]
            found = self._methods.get(code)
            if found is None:
                self._handle_control(code, number, inode, view)
                return
            operation, method = found
            arguments = operation.decode(view)
            caller = _new_tuple(Caller, (uid, gid, pid, groups))
            result = method(inode, caller, *(arguments[1:] if operation.sized else arguments))
            if type(result) is CoroutineType:  # quicker than to ask whether it is a Coroutine of any kind
                work: Awaitable[Any] = result
                if operation.eager:  # what it asks for is on its way before a task is made
                    try:
                        work = StartedCoroutine(result, result.send(None))
                    except StopIteration as done:
                        self._answer(number, self._parts(operation, arguments, done.value))
                        return
                kept = code == Op.WRITE
                task = self._loop.create_task(
                    self._finish(number, operation, arguments, work, buffer if kept else None)
                )
                self._running[number] = _Running(task, operation, arguments, pid)
                return
            self._answer(number, self._parts(operation, arguments, result))
        except Exception as error:
            self._refuse(number, code, error)
        finally:
            if kept:
                self._buffers += 1
            else:
                self._give_back(buffer)

    def _give_back(self, buffer: bytearray) -> None:
        if len(self._free) < _MAX_FREE_BUFFERS:
            self._free.append(buffer)

    def _parts(self, operation: Operation, arguments: Arguments, result: Any) -> Parts:
        parts = operation.encode(result)
        return dispatch.sized(arguments[0], parts) if operation.sized else parts

    async def _finish(
        self,
        number: int,
        operation: Operation,
        arguments: Arguments,
        work: Awaitable[Any],
        buffer: bytearray | None,
    ) -> None:
        try:
            self._answer(number, self._parts(operation, arguments, await work))
        except asyncio.CancelledError:
            self._fail(number, errno.EINTR)
        except Exception as error:
            self._refuse(number, operation.method, error)
        finally:
            del self._running[number]
            if buffer is not None:
                self._buffers -= 1
                self._give_back(buffer)
                self._listen()

    def _handle_control(self, code: int, number: int, inode: int, body: memoryview) -> None:
        """What is not a call of a method."""
        if code == Op.INTERRUPT:
            # Not before the request has begun, or nobody would answer it.
            self._loop.call_soon(self._interrupt, *requests.INTERRUPT.unpack_from(body))
        elif code == Op.FORGET:
            self._filesystem.forget(requests.forget(inode, body))
        elif code == Op.BATCH_FORGET:
            self._filesystem.forget(requests.batch_forget(body))
        elif code == Op.INIT and not self._methods:
            self._handshake(number, body)
        elif code == Op.DESTROY:
            self._answer(number, ())
        else:
            self._fail(number, errno.ENOSYS)

    def _interrupt(self, number: int) -> None:
        """A program has got a signal. The kernel does not tell of the next one, so it is looked for."""
        found = self._running.get(number)
        if found is None or not found.operation.cancellable(found.arguments):
            return
        if found.operation.blocking or signals.is_dying(found.thread):
            found.task.cancel()
        else:
            self._loop.call_later(_SIGNAL_POLL_S, self._interrupt, number)

    def _handshake(self, number: int, body: memoryview) -> None:
        try:
            agreed, answer = init_handshake.answer(body, self._options)
        except requests.Malformed as error:
            self._fail(number, errno.EPROTO)
            self._end(OSError(errno.EPROTO, str(error)))
            return
        self._answer(number, (answer,))
        if agreed is not None:
            self.features = agreed.features
            self._methods = {
                code: (operation, getattr(self._filesystem, operation.method))
                for code, operation in dispatch.negotiated_operations(agreed.features).items()
            }
            self._filesystem.ready()

    # ---- answers ----

    def _answer(self, number: int, parts: Parts) -> None:
        length = replies.HEADER.size + sum(map(len, parts))
        self._send(replies.HEADER.pack(length, 0, number), parts)

    def _fail(self, number: int, error: int) -> None:
        self._send(replies.HEADER.pack(replies.HEADER.size, -error, number), ())

    def _refuse(self, number: int, code: int | str, error: Exception) -> None:
        if code in _UNANSWERED:
            _LOG.error("a note of the kernel could not be read", operation=code, error=repr(error))
        elif isinstance(error, requests.Malformed | struct.error):
            _LOG.error("a request could not be read", operation=code, error=str(error))
            self._fail(number, errno.EIO)
        else:
            self._fail(number, self._filesystem.error_number(error))

    def _send(self, head: bytes, parts: Parts) -> None:
        try:
            os.writev(self._fd, (head, *parts))
        except OSError as error:
            if error.errno == errno.EINVAL:  # the kernel does not like it, and the program waits
                _LOG.error("an answer was not taken", bytes=len(head) + sum(map(len, parts)))
                _, _, number = replies.HEADER.unpack(head)
                if parts:
                    self._fail(number, errno.EIO)
            elif error.errno not in (errno.ENOENT, errno.ENODEV, errno.ECONNABORTED):
                _LOG.error("an answer could not be given", error=str(error))  # else: nobody waits for it any more

    # ---- notices ----

    async def notify_and_wait(self, notice: bytes) -> None:
        """A notice that the kernel takes when requests have been answered. Raises OSError when none are any more."""
        if self._ending:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        task = self._loop.create_task(self._thread.run(self.notify, notice))
        self._notifying.add(task)
        task.add_done_callback(self._notifying.discard)
        await asyncio.shield(task)

    def notify(self, notice: bytes) -> None:
        try:
            os.write(self._fd, notice)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ECONNABORTED, errno.EBADF):
                _LOG.warning("the kernel did not take a notice", error=str(error))
