"""Runs the ranks of a job as threads of this process."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from threefs_checkpoint.group import Group
from threefs_checkpoint.thread_group import ThreadGroup

T = TypeVar("T")

TIMEOUT_S = 60.0


def each_rank(world: int, work: Callable[[Group], T]) -> list[T]:
    """What `work` returns on each rank. A rank that fails ends the waits of the others; the first error is raised."""
    groups = ThreadGroup.all_of(world, TIMEOUT_S)

    def run(group: ThreadGroup) -> T:
        try:
            return work(group)
        except BaseException:
            group.close()
            raise

    with ThreadPoolExecutor(world) as pool:
        calls = [pool.submit(run, group) for group in groups]
    failures = [error for call in calls if (error := call.exception()) is not None]
    if failures:
        raise failures[0]
    return [call.result() for call in calls]


def outcomes(world: int, work: Callable[[Group], T]) -> list[T | Exception]:
    """The result or the error of each rank."""

    def kept(group: Group) -> T | Exception:
        try:
            return work(group)
        except Exception as error:
            return error

    return each_rank(world, kept)
