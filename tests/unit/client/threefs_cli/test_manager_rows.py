"""Managers that answer in different ways, and the rows of `threefs status` about them."""

import asyncio
from typing import Any

import pytest
from threefs_cli.manager_rows import ask, line

from threefs.errors import NotAuthorised, NotPrimary, ThreefsError, Unavailable
from threefs.wire import manager_pb2 as pb


class Manager:
    def __init__(self, answer: pb.GetStatusReply | ThreefsError | None) -> None:
        self._answer = answer

    async def call(self, method: Any, request: Any, *, timeout_s: float) -> Any:
        if self._answer is None:
            await asyncio.sleep(timeout_s)
            raise Unavailable("too late")
        if isinstance(self._answer, ThreefsError):
            raise self._answer
        return self._answer


async def asked(**answers: pb.GetStatusReply | ThreefsError | None) -> tuple[pb.GetStatusReply, list[str]]:
    reply, rows = await ask({address: Manager(answer) for address, answer in answers.items()})
    return reply, [line(row) for row in rows]


def primary(epoch: int) -> pb.GetStatusReply:
    return pb.GetStatusReply(manager_epoch=epoch)


async def test_one_manager() -> None:
    assert await asked(a=primary(3)) == (primary(3), ["manager a is primary"])


async def test_one_that_stands_by_one_that_is_dead_and_one_that_hangs() -> None:
    reply, lines = await asked(a=NotPrimary("no"), b=Unavailable("refused"), c=primary(4), d=None)
    assert reply == primary(4)
    assert lines == [
        "manager a stands by",
        "manager b does not answer: refused",
        "manager c is primary",
        "manager d does not answer: it has not answered for 2 s",
    ]


async def test_one_that_has_lost_its_lease_and_does_not_know_it_yet_stands_by() -> None:
    reply, lines = await asked(a=primary(4), b=primary(5))
    assert reply == primary(5) and lines == ["manager a stands by", "manager b is primary"]


async def test_without_a_primary_the_error_of_one_that_answers_is_raised() -> None:
    with pytest.raises(NotPrimary):
        await asked(a=Unavailable("refused"), b=NotPrimary("no"))
    with pytest.raises(NotAuthorised):
        await asked(a=NotAuthorised("another key"))
