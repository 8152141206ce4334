"""Closes files that are still open for writing when their program, loop or connection ends, so that nothing is lost.

A blocking program ends through `atexit`, or through the finalizers of `multiprocessing`. That closes also the asyncio
files of its connections, as coroutines of fsspec have them. An asyncio program ends with its loop, which closes
asynchronous generators last (`shutdown_asyncgens`, as in `asyncio.run`). One generator per connection waits here for
that.
"""

import asyncio
import contextlib
import io
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any, Generic, Protocol, TypeVar

from threefs.env import loop_thread
from threefs.env.clock import CLOCK
from threefs.telemetry.library_logging import LibraryLogger

#: A daemon thread may be in a call that never ends, such as a wait for a lock. The end of a program waits that long for
#: the calls of all files together, then closes the files beside them.
_BUSY_S = 2.0

_LOG = LibraryLogger(__name__)


class Closable(Protocol):
    """A blocking file."""

    @property
    def name(self) -> Any: ...

    def closing(self, locks: contextlib.ExitStack, wait_s: float) -> tuple[Coroutine[Any, Any, None], bool] | None:
        """The work of closing it, for the loop thread; None: it is closed. Until `locks` ends, no other thread begins
        a call of it. A call that is being made now has `wait_s` to end. Returns also whether it has ended."""


class AsyncClosable(Protocol):
    name: str

    async def close(self) -> None: ...


T = TypeVar("T")


class _Living(Generic[T]):
    """Objects as long as somebody else has them. Unlike a WeakSet it may be listed while other threads add to it."""

    def __init__(self) -> None:
        self._references: dict[int, weakref.ref[T]] = {}

    def add(self, thing: T) -> None:
        number, references = id(thing), self._references
        references[number] = weakref.ref(thing, lambda _: references.pop(number, None))

    def list(self) -> list[T]:
        found = [reference() for reference in [*self._references.values()]]  # copied in one step of the interpreter
        return [thing for thing in found if thing is not None]


_ALL_OPEN_FILES: "_Living[OpenFiles]" = _Living()
#: The closes that the garbage collector has begun, with the connection and the name of each file. It may have found the
#: connection as well, so that nothing else refers to it.
_BEGUN: "dict[loop_thread.Submitted[Exception | None], tuple[OpenFiles, str]]" = {}


#: Those of connections on the loop thread, as long as they have files. A program may have forgotten its files, and the
#: connection as well.
_ON_LOOP_THREAD: "set[AsyncOpenFiles]" = set()


class OpenFiles:
    """The blocking files of a connection that are open for writing. In a forked child the parent's files are left
    alone."""

    def __init__(self) -> None:
        self._files: _Living[Closable | io.TextIOWrapper] = _Living()
        self._generation = loop_thread.generation()
        _ALL_OPEN_FILES.add(self)

    def add(self, file: Closable | io.TextIOWrapper) -> None:
        self._files.add(file)

    def close_later(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Begin to close a file, which the garbage collector has found: on the loop thread it cannot wait for that. An
        error is logged."""
        closing = loop_thread.shared().submit(_close(name, work))
        _BEGUN[closing] = self, name
        closing.add_done_callback(lambda done: _BEGUN.pop(done, None))

    def _begun(self) -> dict["loop_thread.Submitted[Exception | None]", str]:
        """The closes that `close_later` has begun, and their names."""
        return {closing: name for closing, (files, name) in [*_BEGUN.items()] if files is self}

    def close_all(self) -> Exception | None:
        """Close them all at the same time, because the end of a program waits only for a while, and wait for those that
        are being closed. Returns the first error, after all have been tried."""
        if self._generation != loop_thread.generation():
            return None
        names: list[Any] = []
        works: list[Coroutine[Any, Any, None]] = []
        errors: list[Exception | None] = []
        busy_until = CLOCK.monotonic() + _BUSY_S
        with contextlib.ExitStack() as locks:
            for file in self._files.list():
                try:
                    if isinstance(file, io.TextIOWrapper) and file.closed:
                        continue
                    raw: Any = getattr(file, "buffer", file)
                    found = raw.closing(locks, max(0.0, busy_until - CLOCK.monotonic()))
                    if found is None:
                        continue
                    names.append(file.name)
                    works.append(found[0])
                    if isinstance(file, io.TextIOWrapper):
                        _flush_text(file, is_free=found[1])
                except Exception as error:
                    errors.append(_logged(file.name, error))
            try:
                if works or self._begun():
                    errors += loop_thread.run(self._finish(names, works))
            except Exception as error:  # the program has waited long enough
                errors += [_logged(name, error) for name in [*names, *self._begun().values()]]
        return next((error for error in errors if error is not None), None)

    async def _finish(self, names: Sequence[Any], works: Sequence[Coroutine[Any, Any, None]]) -> list[Exception | None]:
        found = await _close_together(names, works)
        while begun := self._begun():
            await asyncio.wait([asyncio.wrap_future(closing) for closing in begun])
        return found


class AsyncOpenFiles:
    """The asyncio files of a connection that are open for writing, also those that their program has forgotten. They
    refer to it, so it lives as long as any of them."""

    def __init__(self) -> None:
        self.closing = False  # no file may be opened any more
        self._files: dict[AsyncClosable, Callable[[], Coroutine[Any, Any, None]]] = {}  # how each is closed
        self._generation = loop_thread.generation()
        self._guard: AsyncGenerator[None, None] | None = None
        self._is_on_loop_thread = False

    def check_open(self) -> None:
        """Raises ValueError if the connection is being closed."""
        if self.closing:
            raise ValueError("the file system object is closed, so no file can be opened")

    def add(self, file: AsyncClosable) -> None:
        """Raises ValueError if the connection is being closed: nobody would close the file."""
        self.check_open()
        self._files[file] = file.close
        if self._is_on_loop_thread:
            _ON_LOOP_THREAD.add(self)

    def close_by(self, file: AsyncClosable, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """If the program leaves the file open, `close` is called instead of its own method. In any thread."""
        if file in self._files:
            self._files[file] = close

    def discard(self, file: AsyncClosable) -> None:
        """The file is closed."""
        self._files.pop(file, None)
        if not self._files:
            _ON_LOOP_THREAD.discard(self)

    def close_with_program(self) -> None:
        """From now on the files, which are of the loop thread, are closed at the end of the program."""
        self._is_on_loop_thread = True

    async def close_with_loop(self) -> None:
        """From now on the files are closed when the running loop is shut down."""
        self._guard = self._wait_for_shutdown()
        await anext(self._guard)

    async def close_all(self) -> None:
        """Close them now, and refuse others. Raises the first error, after all have been tried."""
        self.closing = True
        guard, self._guard = self._guard, None
        await (self.close_open() if guard is None else guard.aclose())

    async def _wait_for_shutdown(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self.closing = True
            await self.close_open()

    def names(self) -> list[str]:
        """Of the files that are open. In any thread; in a forked child there are none."""
        return [file.name for file in [*self._files]] if self._generation == loop_thread.generation() else []

    async def close_open(self) -> None:
        """Close those that are open now. Raises the first error, after all have been tried."""
        files, self._files = self._files, {}
        _ON_LOOP_THREAD.discard(self)
        errors = await _close_together([file.name for file in files], [close() for close in files.values()])
        for error in errors:
            if error is not None:
                raise error


def _flush_text(file: io.TextIOWrapper, *, is_free: bool) -> None:
    """Hand over the text that the wrapper holds. A thread that is in a call of the file would be waited for."""
    if not is_free:
        raise TimeoutError("another thread is in a call of it, so its last text may be lost")
    file.flush()


async def _close_together(names: Sequence[Any], works: Sequence[Coroutine[Any, Any, None]]) -> list[Exception | None]:
    """Returns None or the error of each file."""
    closes = (_close(name, work, loop_thread.EXIT_S) for name, work in zip(names, works, strict=True))
    return await asyncio.gather(*closes)


async def _close(name: Any, work: Coroutine[Any, Any, None], limit_s: float | None = None) -> Exception | None:
    try:
        async with asyncio.timeout(limit_s):
            await work
    except Exception as error:
        return _logged(name, error)
    return None


def _logged(name: Any, error: Exception) -> Exception:
    _LOG.warning("a file that was left open could not be closed", file=name, error=str(error))
    return error


def _close_all() -> None:
    for files in _ALL_OPEN_FILES.list():
        files.close_all()
    for files in {files for files, _ in [*_BEGUN.values()]}:
        files.close_all()
    left = [files for files in [*_ON_LOOP_THREAD] if files.names()]  # none in a forked child
    names = [name for files in left for name in files.names()]
    if left:
        try:
            loop_thread.run(_close_left(left))
        except Exception as error:  # the program has waited long enough
            for name in names:
                _logged(name, error)


async def _close_left(left: Sequence[AsyncOpenFiles]) -> None:
    """What fails is logged."""
    await asyncio.gather(*(files.close_open() for files in left), return_exceptions=True)


loop_thread.at_exit(_close_all)
