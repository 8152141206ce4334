"""Commands that do the same with each of several paths. One that fails keeps the others from nothing, as with rm(1)."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import click

from threefs.errors import Retry, ThreefsError
from threefs_cli.output import printable

T = TypeVar("T")


async def with_each(
    paths: Sequence[str], work: Callable[[str], Awaitable[T]]
) -> tuple[list[tuple[str, T]], list[ThreefsError]]:
    """(what came of the paths, the errors of the others). A cluster that does not answer ends it, because each further
    path would wait for it as well."""
    done: list[tuple[str, T]] = []
    failures: list[ThreefsError] = []
    for path in paths:
        try:
            done.append((path, await work(path)))
        except ThreefsError as error:
            failures.append(error)
            if error.retry is not Retry.NEVER:
                break
    return done, failures


def with_each_blocking(
    paths: Sequence[str], work: Callable[[str], T]
) -> tuple[list[tuple[str, T]], list[ThreefsError]]:
    """`with_each` for work that blocks."""
    done: list[tuple[str, T]] = []
    failures: list[ThreefsError] = []
    for path in paths:
        try:
            done.append((path, work(path)))
        except ThreefsError as error:
            failures.append(error)
            if error.retry is not Retry.NEVER:
                break
    return done, failures


def raise_last(failures: Sequence[ThreefsError]) -> None:
    """Print all but the last one, which ends the command."""
    for error in failures[:-1]:
        click.echo(f"Error: {printable(str(error))}", err=True)
    if failures:
        raise failures[-1]
