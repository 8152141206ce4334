"""Closes files that are still open for writing when their program, loop or connection ends, so that nothing is lost.

A blocking program ends through `atexit`, or through the finalizers of `multiprocessing`. An asyncio program ends with
its loop, which closes asynchronous generators last (`shutdown_asyncgens`, as in `asyncio.run`). One generator per
connection waits here for that.
"""

import asyncio
import weakref
from collections.abc import AsyncGenerator
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakSet

from threefs.env import loop_thread
from threefs.telemetry.library_logging import LibraryLogger

_LOG = LibraryLogger(__name__)


class Closable(Protocol):
    """A file, or a text wrapper around one."""

    @property
    def name(self) -> Any: ...

    def close(self) -> None: ...


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


class OpenFiles:
    """The blocking files of a connection that are open for writing. In a forked child the parent's files are left
    alone."""

    def __init__(self) -> None:
        self._files: _Living[Closable] = _Living()
        self._generation = loop_thread.generation()
        _ALL_OPEN_FILES.add(self)

    def add(self, file: Closable) -> None:
        self._files.add(file)

    def close_all(self) -> Exception | None:
        """Close them all. Returns the first error, after all have been tried."""
        if self._generation != loop_thread.generation():
            return None
        first: Exception | None = None
        for file in self._files.list():
            try:
                file.close()
            except Exception as error:
                first = first or error
                _LOG.warning("a file that was left open could not be closed", file=file.name, error=str(error))
        return first


class AsyncOpenFiles:
    """The asyncio files of a connection that are open for writing. They refer to it, so it lives as long as any of
    them."""

    def __init__(self) -> None:
        self._files: WeakSet[AsyncClosable] = WeakSet()
        self._guard: AsyncGenerator[None, None] | None = None

    def add(self, file: AsyncClosable) -> None:
        self._files.add(file)

    async def close_with_loop(self) -> None:
        """From now on the files are closed when the running loop is shut down."""
        self._guard = self._wait_for_shutdown()
        await anext(self._guard)

    async def close_all(self) -> None:
        """Close them now. Raises the first error, after all have been tried."""
        guard, self._guard = self._guard, None
        if guard is not None:
            await guard.aclose()

    async def _wait_for_shutdown(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            await self._close_all()

    async def _close_all(self) -> None:
        first: Exception | None = None
        for file in list(self._files):
            try:
                async with asyncio.timeout(loop_thread.EXIT_S):
                    await file.close()
            except Exception as error:
                first = first or error
                _LOG.warning("a file that was left open could not be closed", file=file.name, error=str(error))
        if first is not None:
            raise first


def _close_all() -> None:
    for files in _ALL_OPEN_FILES.list():
        files.close_all()


loop_thread.at_exit(_close_all)
