"""The session with the kernel for one mount, on the event loop: reads requests, calls the file system, sends answers.

If a method returns its result at once, the answer is sent in the step in which the request was read; else the request
gets a task. The kernel sends at most one request per waiting thread, and `SessionOptions.background` requests for which
no program waits.
"""

import asyncio
import errno
import os
import struct
from collections.abc import Awaitable, Callable
from types import CoroutineType
from typing import Any, NamedTuple

import structlog

from threefs.env.clock import CLOCK
from threefs.env.eager import StartedCoroutine
from threefs.env.shielded_wait import shielded
from threefs.env.worker_threads import ThreadWorker
from threefs.telemetry.histogram import Histogram
from threefs_fuse import dispatch, init_handshake, protocol, replies, requests, signals
from threefs_fuse.dispatch import Arguments, Operation
from threefs_fuse.fuse_filesystem import FuseFileSystem
from threefs_fuse.init_handshake import SessionOptions
from threefs_fuse.protocol import Feature, Op
from threefs_fuse.replies import Parts
from threefs_fuse.requests import Caller

_LOG = structlog.get_logger()

_BUFFER_BYTES = protocol.HEAD_BYTES + protocol.MAX_PAYLOAD_BYTES
#: This many requests are read in one turn of the loop.
_MAX_READS = 64
#: A write keeps its buffer until it is answered. With so many bytes in them no request is read. Most of the buffer of a
#: small write was never touched, so it takes no memory.
_MAX_KEPT_BYTES = 64 << 20
_MAX_FREE_BUFFERS = 8
#: The kernel reports only the first signal of a program that waits, so a later deadly one is found by polling.
_SIGNAL_POLL_S = 0.5
#: Threads that wait in the kernel, each for a file whose reads are under way.
_MAX_NOTIFICATIONS = 32
_UNANSWERED = (Op.FORGET, Op.BATCH_FORGET, Op.INTERRUPT)


_new_tuple = tuple.__new__  # three times as fast as the constructor of a named tuple


class _Running(NamedTuple):
    """A request that has a task."""

    task: "asyncio.Task[None]"
    operation: Operation
    arguments: Arguments
    thread: int


class Session:
    """Owns `fd`, an open and mounted /dev/fuse. `ended` is done after the unmount, or has the error that ended the
    session."""

    def __init__(self, fd: int, filesystem: FuseFileSystem, options: SessionOptions) -> None:
        self.features = Feature(0)
        #: By operation, from the read of a request to its answer, if somebody asks for them.
        self.durations: dict[str, Histogram] | None = None
        self._fd = fd
        self._filesystem = filesystem
        self._options = options
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._methods: dict[int, tuple[Operation, Callable[..., Any]]] = {}
        self._running: dict[int, _Running] = {}
        self._interrupted: set[int] = set()  # of these, those whose program has received a signal
        self._free: list[bytearray] = []
        self._kept_bytes = 0  # of requests in buffers that writes keep
        self._reading = self._ending = self._draining = False
        self._notifier = ThreadWorker("notifications", _MAX_NOTIFICATIONS)  # for those that may block in the kernel
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
        """Read no more requests, and finish those that were read. Programs that wait get ENOTCONN."""
        self._ending = True
        while self._notifying and not self.ended.done():  # the kernel takes them only after other answers
            await asyncio.wait(self._notifying)
        self._draining = True
        self._pause()
        await asyncio.sleep(0)  # so that the tasks of the last requests start
        for running in list(self._running.values()):
            if running.operation.cancellable(running.arguments):
                running.task.cancel()
        await asyncio.gather(*(running.task for running in self._running.values()), return_exceptions=True)

    async def close(self) -> None:
        """End the session. Programs that still wait get ENOTCONN."""
        await self.drain()
        os.close(self._fd)
        if not self._notifying:
            await self._notifier.close()

    def waiting(self, code: Op) -> int:
        """The number of requests of that kind that were read and are not answered."""
        return sum(running.operation is self._methods[code][0] for running in self._running.values())

    # ---- requests ----

    def _readable(self) -> None:
        for _ in range(_MAX_READS):
            if self._kept_bytes >= _MAX_KEPT_BYTES:
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
                    continue  # the request was withdrawn
                self._end(None if error.errno in (errno.ENODEV, errno.ECONNABORTED) else error)
                return
            self._handle_request(buffer, size)

    def _handle_request(self, buffer: bytearray, size: int) -> None:
        """Handle one request. A write keeps the buffer until it is answered; other requests free it at once."""
        length, code, number, inode, uid, gid, pid, extended, _ = requests.HEADER.unpack_from(buffer)
        kept = False
        began = CLOCK.monotonic() if self.durations is not None else 0.0
        try:
            if length != size:
                raise requests.Malformed(f"a request has {size} bytes and says {length}")
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
            if type(result) is CoroutineType:  # faster than isinstance
                work: Awaitable[Any] = result
                if operation.eager:  # its calls are sent before a task is made
                    try:
                        work = StartedCoroutine(result, result.send(None))
                    except StopIteration as done:
                        self._answer(number, self._parts(operation, arguments, done.value))
                        self._observe(operation, began)
                        return
                kept = code == Op.WRITE
                task = self._loop.create_task(
                    self._finish(number, operation, arguments, work, (buffer, size) if kept else None, began)
                )
                self._running[number] = _Running(task, operation, arguments, pid)
                return
            self._answer(number, self._parts(operation, arguments, result))
            self._observe(operation, began)
        except Exception as error:
            self._refuse(number, code, error)
        finally:
            if kept:
                self._kept_bytes += size
            else:
                self._give_back(buffer)

    def _observe(self, operation: Operation, began: float) -> None:
        if self.durations is not None:
            durations = self.durations.get(operation.method)
            if durations is None:
                durations = self.durations[operation.method] = Histogram()
            durations.observe(CLOCK.monotonic() - began)

    @property
    def requests_in_flight(self) -> int:
        """Requests that were read and are not answered."""
        return len(self._running)

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
        kept: tuple[bytearray, int] | None,
        began: float,
    ) -> None:
        """`kept` is the buffer that the request lies in, and its size."""
        try:
            self._answer(number, self._parts(operation, arguments, await work))
        except asyncio.CancelledError:  # EINTR without a signal would reach the program as a number of the kernel's own
            self._fail(number, errno.EINTR if number in self._interrupted else errno.ENOTCONN)
        except Exception as error:
            self._refuse(number, operation.method, error)
        finally:
            del self._running[number]
            self._interrupted.discard(number)
            self._observe(operation, began)
            if kept is not None:
                buffer, size = kept
                self._kept_bytes -= size
                self._give_back(buffer)
                self._listen()

    def _handle_control(self, code: int, number: int, inode: int, body: memoryview) -> None:
        """Handle a request that is not answered by a method of the file system."""
        if code == Op.INTERRUPT:
            # Later, because a task that is cancelled before it starts would not answer its request.
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
        """The program has received a signal."""
        found = self._running.get(number)
        if found is None or not found.operation.cancellable(found.arguments):
            return
        if found.operation.blocking or signals.is_dying(found.thread):
            self._interrupted.add(number)
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
            _LOG.error("a request without an answer could not be read", operation=code, error=repr(error))
        elif isinstance(error, requests.Malformed | struct.error):
            _LOG.error("a request could not be read", operation=code, error=str(error))
            self._fail(number, errno.EIO)
        else:
            self._fail(number, self._filesystem.error_number(error))

    def _send(self, head: bytes, parts: Parts) -> None:
        try:
            os.writev(self._fd, (head, *parts))
        except OSError as error:
            if error.errno == errno.EINVAL:  # the kernel refuses the answer, and the program still waits
                _LOG.error("the kernel refused an answer", bytes=len(head) + sum(map(len, parts)))
                _, _, number = replies.HEADER.unpack(head)
                if parts:
                    self._fail(number, errno.EIO)
            elif error.errno not in (errno.ENOENT, errno.ENODEV, errno.ECONNABORTED):
                _LOG.error("an answer could not be sent", error=str(error))  # else no program waits for it any more

    # ---- notifications ----

    async def notify_and_wait(self, notification: bytes) -> None:
        """Send a notification for which the kernel waits until other requests are answered. Raises OSError while the
        session ends, when they are not answered any more."""
        if self._ending:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        task = self._loop.create_task(self._notifier.run(self.notify, notification))
        self._notifying.add(task)
        task.add_done_callback(self._notifying.discard)
        await shielded(task)

    def notify(self, notification: bytes) -> None:
        """Send a notification. On the loop only one that the kernel takes without waiting."""
        try:
            os.write(self._fd, notification)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ECONNABORTED, errno.EBADF):
                _LOG.warning("the kernel refused a notification", error=str(error))
