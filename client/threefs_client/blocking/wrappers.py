"""Wrappers that make blocking methods of asyncio ones: the same arguments, types and documentation, and the result
itself.

    class FileSystem:
        stat = blocking(AsyncFileSystem.stat)

A type checker sees `stat(path, *, follow=True) -> Attributes`. The reference pages show the same
(`docs/site/blocking_methods.py`).
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from threefs.env import loop_thread

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
F = TypeVar("F", bound=Callable[..., Any])


class Blocking(Protocol[A_co]):
    """An object of a blocking class."""

    def _async(self) -> A_co:
        """The asyncio object behind it."""

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run on the loop thread, and wait for the result."""


def blocking(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Blocking[A], P], T]:
    """The method that waits for the result of that asyncio method."""

    @wraps(method)
    def call(self: Blocking[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        work: Coroutine[Any, Any, T] = getattr(self._async(), method.__name__)(*args, **kwargs)
        return self._run(work)

    return call


def blocking_iterator(
    method: Callable[Concatenate[A, P], AsyncIterator[T]], *, at_once: int
) -> Callable[Concatenate[Blocking[A], P], Iterator[T]]:
    """The same for an asyncio generator. One call to the loop thread fetches up to `at_once` items. With 1, the next
    item is made only after the caller has used the previous one."""

    @wraps(method)
    def call(self: Blocking[A], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        items: AsyncIterator[T] = getattr(self._async(), method.__name__)(*args, **kwargs)
        generation = loop_thread.generation()
        while part := self._run(_next_items(items, at_once)):
            yield from part
            if len(part) < at_once:
                return
            if generation != loop_thread.generation():
                raise RuntimeError(
                    f"{method.__name__} began before this process was forked: call it again in the child"
                )

    return call


async def _next_items(items: AsyncIterator[T], limit: int) -> list[T]:
    found: list[T] = []
    async for item in items:
        found.append(item)
        if len(found) == limit:
            break
    return found


def documented_by(method: Callable[..., Any]) -> Callable[[F], F]:
    """For a method that does more than delegate: it has the documentation of an asyncio method."""

    def decorate(own: F) -> F:
        own.__doc__ = method.__doc__
        return own

    return decorate
