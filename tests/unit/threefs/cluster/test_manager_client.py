"""Which manager is asked."""

import asyncio
from typing import Any

import pytest

from threefs.cluster.manager_client import ManagerClient
from threefs.errors import (
    ConnectionLost,
    DeadlineExceeded,
    Fenced,
    InvalidArgument,
    NotAuthorised,
    NotPrimary,
    Overloaded,
    ProtocolError,
    Stopping,
    ThreefsError,
    Unavailable,
    WrongVersion,
)
from threefs.rpc.methods import GET_STATUS
from threefs.wire import manager_pb2 as pb


class Manager:
    """Answers, or raises."""

    def __init__(self, failure: ThreefsError | None = None) -> None:
        self.failure = failure
        self.asked = 0

    async def call(self, method: Any, request: Any, *, timeout_s: float) -> Any:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        return pb.GetStatusReply(manager_epoch=self.asked)


def ask(managers: ManagerClient) -> pb.GetStatusReply:
    return asyncio.run(managers.call(GET_STATUS, pb.GetStatusRequest(), timeout_s=1.0))


def test_the_one_that_answered_is_asked_again_first() -> None:
    standby, gone, primary = Manager(NotPrimary()), Manager(Unavailable()), Manager()
    managers = ManagerClient([standby, gone, primary])
    assert [ask(managers).manager_epoch for _ in range(3)] == [1, 2, 3]
    assert (standby.asked, gone.asked, primary.asked) == (1, 1, 3)
    primary.failure, standby.failure = NotPrimary(), None
    ask(managers)
    ask(managers)
    assert (standby.asked, gone.asked, primary.asked) == (3, 1, 4)


@pytest.mark.parametrize("failure", [DeadlineExceeded(), ConnectionLost(), Unavailable("cannot connect")])
def test_one_that_is_silent_is_asked_after_one_that_speaks_the_next_time(failure: ThreefsError) -> None:
    """While nobody was primary, each call waited for the dead one first."""
    dead, gone, standby = Manager(), Manager(failure), Manager(NotPrimary())
    managers = ManagerClient([dead, gone, standby])
    ask(managers)
    dead.failure = failure
    with pytest.raises(NotPrimary):
        ask(managers)
    standby.failure = None
    ask(managers)
    assert (dead.asked, gone.asked, standby.asked) == (2, 1, 2)


def test_the_primary_is_asked_first_after_a_lost_answer_when_nobody_else_speaks() -> None:
    """The next call waited for the dead one first."""
    primary, dead = Manager(), Manager(Unavailable("cannot connect"))
    managers = ManagerClient([primary, dead])
    primary.failure = DeadlineExceeded()
    with pytest.raises(Unavailable):
        ask(managers)
    primary.failure = None
    ask(managers)
    assert (primary.asked, dead.asked) == (2, 1)


@pytest.mark.parametrize("failure", [Overloaded("too many peers"), Stopping("it ends")])
def test_another_one_is_asked_after_one_that_takes_no_calls_now(failure: ThreefsError) -> None:
    busy, primary = Manager(failure), Manager()
    assert [ask(ManagerClient([busy, primary])).manager_epoch for _ in range(2)] == [1, 2]
    with pytest.raises(type(failure)):
        ask(ManagerClient([busy]))


def test_what_the_primary_refuses_is_final() -> None:
    primary, other = Manager(InvalidArgument("no such thing")), Manager()
    with pytest.raises(InvalidArgument, match="no such thing"):
        ask(ManagerClient([primary, other]))
    assert not other.asked


def test_when_none_answers_the_last_reason_is_reported() -> None:
    with pytest.raises(Unavailable, match="cut off"):
        ask(ManagerClient([Manager(NotPrimary()), Manager(Unavailable("cut off"))]))


def test_a_process_on_the_port_of_a_dead_manager_keeps_no_client_from_the_others() -> None:
    """A process could not start, and one that registered again ended."""
    impostor, primary = Manager(NotAuthorised("another key")), Manager()
    assert ask(ManagerClient([impostor, primary])).manager_epoch == 1
    with pytest.raises(NotAuthorised, match="another key"):
        ask(ManagerClient([impostor, Manager(Unavailable("cut off"))]))
    managers = ManagerClient([primary, Manager(NotAuthorised("another key"))])
    ask(managers)
    primary.failure = Unavailable("cut off")
    with pytest.raises(Unavailable, match="cut off"):
        ask(managers)
    alone = ManagerClient([primary])
    primary.failure = None
    ask(alone)
    primary.failure = NotAuthorised("another key")
    with pytest.raises(Unavailable, match="no manager of this cluster answers: another key"):
        ask(alone)


@pytest.mark.parametrize("answer", [NotPrimary(), Fenced("another holds the next epoch")])
def test_an_answer_of_a_manager_that_is_not_the_primary_shows_that_the_key_is_right(answer: ThreefsError) -> None:
    """A process that started while a program without the key had the port of a dead manager ended, and did not wait."""
    managers = ManagerClient([Manager(NotAuthorised("no key")), Manager(answer)])
    with pytest.raises(type(answer)):
        ask(managers)


@pytest.mark.parametrize("strange", [ProtocolError("220 mail.example.org ESMTP"), WrongVersion("protocol 9")])
def test_a_program_that_is_no_manager_keeps_no_process_from_the_managers(strange: ThreefsError) -> None:
    """A meta service could not start while such a program had the port of a dead manager, though another one led."""
    stranger, primary = Manager(strange), Manager()
    assert ask(ManagerClient([stranger, primary])).manager_epoch == 1
    with pytest.raises(Unavailable, match="cut off"):
        ask(ManagerClient([stranger, Manager(Unavailable("cut off"))]))
    with pytest.raises(Unavailable, match="cut off"):
        ask(ManagerClient([Manager(Unavailable("cut off")), stranger]))
    with pytest.raises(type(strange)):
        ask(ManagerClient([stranger]))
