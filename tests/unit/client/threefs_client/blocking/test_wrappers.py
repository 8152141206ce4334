"""A blocking method has the name, the arguments, the types and the documentation of the asyncio one behind it."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from typing import Any, TypeVar, assert_type

import pytest
from threefs_client.async_file import AsyncFile
from threefs_client.async_filesystem import AsyncFileSystem
from threefs_client.attributes import Attributes, Entry
from threefs_client.blocking.file import File
from threefs_client.blocking.filesystem import BlockingQuotas, BlockingTrash, FileSystem
from threefs_client.blocking.wrappers import blocking, blocking_iterator
from threefs_client.metadata.quotas import Quota, Quotas
from threefs_client.metadata.trash import Trash, Trashed
from threefs_client.metadata.walking import Step

from threefs.errors import ThreefsError

T = TypeVar("T")

#: Each class has its own of these: the blocking one opens text files too, may be lent and forked, and has file objects
#: of other interfaces (`threefs_fsspec`).
OWN = {
    "acting_as",
    "close",
    "open",
    "quotas",
    "trash",
    "context",
    "caller",
    "open_files",
    "open_as",
    "connected",
    "track",
}
#: For programs of threefs itself, which are asyncio programs.
ASYNC_ONLY = {"list_page", "stat_inodes"}


def public_methods(kind: type) -> dict[str, Callable[..., Any]]:
    return {name: value for name, value in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


@pytest.fixture
def counter() -> Iterator["BlockingCounter"]:
    with asyncio.Runner() as runner:
        yield BlockingCounter(runner)


@pytest.mark.parametrize(
    ("own", "behind"), [(FileSystem, AsyncFileSystem), (BlockingQuotas, Quotas), (BlockingTrash, Trash)]
)
def test_every_method_has_its_blocking_twin(own: type, behind: type) -> None:
    methods = public_methods(own)
    for name, method in public_methods(behind).items():
        if name not in OWN | ASYNC_ONLY:
            assert methods[name].__doc__ == method.__doc__, name
            assert not inspect.iscoroutinefunction(methods[name]), name
            signature = inspect.signature(method)
            assert inspect.signature(methods[name]).parameters.keys() == signature.parameters.keys(), name
    assert methods.keys() - OWN <= public_methods(behind).keys()


def test_every_public_method_is_documented() -> None:
    for kind in (FileSystem, File, BlockingQuotas, BlockingTrash, AsyncFileSystem, AsyncFile):
        assert not [name for name, method in public_methods(kind).items() if not inspect.getdoc(method)]


def types_that_a_checker_sees(fs: FileSystem, file: File) -> None:
    """Never called."""
    assert_type(fs.stat("/a", follow=False), Attributes)
    assert_type(fs.stat_many(["/a"]), list[Attributes | None])
    assert_type(fs.create_many(["/a"], parents=True), Sequence[Attributes | ThreefsError])
    assert_type(fs.read_batch([("/a", 0, 1)]), list[memoryview])
    assert_type(fs.remove("/a", recursive=True), None)
    assert_type(fs.list("/a"), Iterator[Entry])
    assert_type(fs.walk("/a", with_attributes=False), Iterator[Step])
    assert_type(fs.quotas.show("/a"), Quota | None)
    assert_type(fs.trash.list(uid=7), Iterator[Trashed])
    assert_type(file.seek_data(7), int)
    assert_type(file.peek(), bytes)
    fs.stat(7)  # type: ignore[arg-type]
    fs.stat("/a", wait=True)  # type: ignore[call-arg]
    file.lock(False)  # type: ignore[call-arg]


class Counter:
    def __init__(self) -> None:
        self.made: list[int] = []

    async def add(self, one: int, *, other: int = 2) -> int:
        """The sum."""
        return one + other

    async def numbers(self, end: int) -> AsyncIterator[int]:
        for number in range(end):
            self.made.append(number)
            yield number


class BlockingCounter:
    def __init__(self, runner: asyncio.Runner) -> None:
        self.counter = Counter()
        self.visits = 0
        self.runner = runner

    def _async(self) -> Counter:
        return self.counter

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        self.visits += 1
        return self.runner.run(work)

    add = blocking(Counter.add)
    numbers = blocking_iterator(Counter.numbers, at_once=4)
    slow_numbers = blocking_iterator(Counter.numbers, at_once=1)


def test_arguments_and_results_pass(counter: BlockingCounter) -> None:
    assert (counter.add(1), counter.add(1, other=5)) == (3, 6)
    assert (BlockingCounter.add.__name__, BlockingCounter.add.__doc__) == ("add", "The sum.")
    with pytest.raises(TypeError):
        counter.add()  # type: ignore[call-arg]


def test_an_iterator_is_fetched_in_parts_and_not_ahead_of_them(counter: BlockingCounter) -> None:
    assert list(counter.numbers(10)) == list(range(10)) and counter.visits == 3
    found = counter.slow_numbers(10)
    counter.counter.made.clear()
    assert (next(found), next(found)) == (0, 1) and counter.counter.made == [0, 1]
