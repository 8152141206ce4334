"""The trash is emptied as far as possible."""

from collections.abc import AsyncIterator, Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from threefs_client.metadata.trash import Trash

from threefs.errors import AccessDenied, Corrupt, NotFound, ThreefsError, Unavailable
from threefs.wire import meta_pb2 as pb


class _Namespace:
    """Items by the path of their directory. Some of these paths cannot be listed or removed."""

    def __init__(self, errors: dict[str, Callable[[], ThreefsError]]) -> None:
        self.caller = pb.Caller()
        self.items = {"/.trash": ["7", "8"], "/.trash/7": ["a", "b", "c"], "/.trash/8": ["d"]}
        self._errors = errors

    def _check(self, path: str) -> None:
        if path in self._errors:
            raise self._errors[path]()

    async def _call(self, method: object, request: pb.ListTrashRequest) -> pb.ListTrashReply:
        self._check(request.place.path.decode())
        return pb.ListTrashReply()

    async def list(self, path: str) -> AsyncIterator[Any]:
        for name in list(self.items[path]):
            yield SimpleNamespace(name=name)

    async def remove(self, path: str, *, recursive: bool) -> None:
        self._check(path)
        directory, _, name = path.rpartition("/")
        self.items[directory].remove(name)

    @property
    def left(self) -> str:
        return "".join(self.items["/.trash/7"] + self.items["/.trash/8"])


refused, damaged = partial(AccessDenied, "a directory of somebody else"), partial(Corrupt, "damaged")


@pytest.mark.parametrize(
    ("errors", "last", "left"),
    [
        ({"/.trash/7/a": refused}, AccessDenied, "a"),
        ({"/.trash/7/a": refused, "/.trash/7/c": damaged}, Corrupt, "ac"),
        ({"/.trash/7": damaged}, Corrupt, "abc"),
    ],
)
async def test_items_and_owners_that_cannot_be_emptied_keep_no_others(
    errors: dict[str, Callable[[], ThreefsError]], last: type[ThreefsError], left: str
) -> None:
    namespace = _Namespace(errors)
    with pytest.raises(last):
        await Trash(cast(Any, namespace)).empty()
    assert namespace.left == left


async def test_what_is_gone_is_no_failure() -> None:
    namespace = _Namespace({"/.trash/7/b": partial(NotFound, "restored")})
    assert await Trash(cast(Any, namespace)).empty() == 3


async def test_a_cluster_that_does_not_answer_is_not_asked_for_each_item() -> None:
    namespace = _Namespace({"/.trash/7/b": partial(Unavailable, "nobody answers")})
    with pytest.raises(Unavailable):
        await Trash(cast(Any, namespace)).empty()
    assert namespace.left == "bcd"
