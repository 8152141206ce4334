"""The delegations that one mount holds. What they guarantee is shown in tests/contract/test_delegations.py."""

import pytest
from threefs_mount.cache import delegation as bounds
from threefs_mount.cache.delegation import (
    CREATES_BEFORE_REQUEST,
    IDLE_S,
    LARGE_PAUSE_S,
    PAUSE_S,
    Delegation,
    DirectoryDelegations,
)

from threefs.leases import DELEGATION_S


class Mount:
    """Claims of directory 7, with all that happens there in short words."""

    def __init__(self, *, enabled: bool = True) -> None:
        self.wanted: list[int] = []
        self.given_back: list[tuple[int, int]] = []
        self.delegations = DirectoryDelegations(
            self.wanted.append, lambda *delegation: self.given_back.append(delegation), enabled=enabled
        )
        self.now_s = 100.0
        self.number = 0

    def absent(self, name: bytes = b"x", directory: int = 7) -> bool:
        return self.delegations.is_negative(directory, name, self.now_s)

    def add(self, name: bytes, delegation: int = 0, recalled: int = 0, *, looked: bool = True) -> None:
        """A look that has to be asked for, a name, and its answer."""
        if looked and not self.absent(name):
            self.delegations.record_negative_lookup(7, self.now_s)
        self.number += 1
        addition = self.delegations.begin_create(7, name, self.number, self.now_s)
        self.delegations.create_done(addition, delegation, recalled, self.now_s)

    def remove(self, name: bytes) -> None:
        self.delegations.unlink_done(self.delegations.begin_unlink(7, name))

    def want(self) -> None:
        for number in range(CREATES_BEFORE_REQUEST):
            self.add(b"%d" % number)
        assert self.wanted == [7]

    def ask(self) -> Delegation:
        self.number += 1
        self.wanted.remove(7)
        delegation, _ = self.delegations.begin_request(7, self.number, self.now_s)
        return delegation

    def hold(self, *names: bytes) -> Delegation:
        self.want()
        delegation = self.ask()
        assert self.delegations.request_answered(delegation, delegation.number, self.now_s, self.now_s)
        assert self.delegations.insert_names(delegation, names, self.now_s, more=False)
        return delegation


def test_repeated_lookups_and_creates_request_the_delegation() -> None:
    mount = Mount()
    for number in range(CREATES_BEFORE_REQUEST - 1):
        mount.add(b"%d" % number)
    assert not mount.wanted
    mount.add(b"last", looked=False)
    assert not mount.wanted
    mount.add(b"last")
    mount.add(b"more")
    assert mount.wanted == [7]


def test_names_without_a_lookup_and_old_ones_do_not_count() -> None:
    mount = Mount()
    for number in range(3 * CREATES_BEFORE_REQUEST):
        mount.add(b"%d" % number, looked=False)
    for number in range(3 * CREATES_BEFORE_REQUEST):
        mount.now_s += 1.1 if number % 4 == 0 else 0.0
        mount.add(b"%d" % number)
    assert not mount.wanted
    silent = Mount(enabled=False)
    for number in range(3 * CREATES_BEFORE_REQUEST):
        silent.add(b"%d" % number)
    assert not silent.wanted


def test_absent_is_what_is_not_listed_and_was_not_added() -> None:
    mount = Mount()
    mount.want()
    delegation = mount.ask()
    mount.add(b"early")
    assert mount.delegations.request_answered(delegation, delegation.number, mount.now_s, mount.now_s)
    assert mount.delegations.insert_names(delegation, [b"a"], mount.now_s, more=True) and not mount.absent()
    mount.add(b"late", delegation.number)
    assert mount.delegations.insert_names(delegation, [b"b"], mount.now_s, more=False) and mount.absent()
    for name in (b"a", b"b", b"early", b"late", b"n" * 256):
        assert not mount.absent(name)
    assert mount.absent(b"n" * 255) and not mount.absent(directory=8)


def test_it_counts_from_the_sending_of_the_last_name_whose_answer_says_so() -> None:
    mount = Mount()
    delegation = mount.hold()
    mount.now_s += 0.9 * DELEGATION_S
    addition = mount.delegations.begin_create(7, b"a", 50, mount.now_s)
    assert mount.absent()
    mount.now_s += 0.2 * DELEGATION_S
    assert not mount.absent()
    mount.delegations.create_done(addition, delegation.number, 0, mount.now_s)
    assert mount.absent()
    mount.now_s += 0.9 * DELEGATION_S
    assert not mount.absent()
    mount.add(b"b", delegation.number)
    assert mount.absent()


def test_answers_may_cross() -> None:
    mount = Mount()
    delegation = mount.hold()
    older = mount.delegations.begin_create(7, b"a", 50, mount.now_s)
    newer = mount.delegations.begin_create(7, b"b", 51, mount.now_s + 0.1)
    mount.delegations.create_done(newer, delegation.number, 0, mount.now_s + 0.1)
    mount.delegations.create_done(older, delegation.number, 0, mount.now_s + 0.1)
    assert delegation.confirmed_s == mount.now_s + 0.1


def test_a_recalled_delegation_is_dropped_then_returned_and_not_requested_for_a_while() -> None:
    mount = Mount()
    delegation = mount.hold()
    crossing = mount.delegations.begin_create(7, b"a", 50, mount.now_s)
    mount.add(b"b", 0, delegation.number)
    assert not mount.absent() and mount.given_back == [(7, delegation.number)] and not len(mount.delegations)
    mount.delegations.create_done(crossing, delegation.number, 0, mount.now_s)
    assert not mount.absent() and len(mount.given_back) == 1
    for number in range(2 * CREATES_BEFORE_REQUEST):
        mount.add(b"%d" % number)
    assert not mount.wanted
    mount.now_s += PAUSE_S
    mount.want()


def test_an_awaited_delegation_is_returned_even_if_it_is_not_known() -> None:
    mount = Mount()
    mount.add(b"a", 0, 33)
    assert mount.given_back == [(7, 33)]


def test_a_delegation_that_has_ended_unnoticed_is_dropped() -> None:
    for answer in (0, 99):
        mount = Mount()
        delegation = mount.hold()
        mount.add(b"a", answer)
        assert not mount.absent() and mount.given_back == [(7, delegation.number)]


def test_answers_to_what_was_sent_before_the_grant_say_nothing() -> None:
    mount = Mount()
    mount.want()
    early = mount.delegations.begin_create(7, b"early", 50, mount.now_s)
    delegation = mount.ask()
    mount.delegations.request_answered(delegation, delegation.number, mount.now_s, mount.now_s)
    mount.delegations.insert_names(delegation, [], mount.now_s, more=False)
    mount.delegations.create_done(early, 0, 0, mount.now_s)
    assert mount.absent() and not mount.absent(b"early")


def test_after_a_silence_nothing_is_made_of_a_late_answer() -> None:
    mount = Mount()
    delegation = mount.hold()
    addition = mount.delegations.begin_create(7, b"a", 50, mount.now_s)
    mount.now_s += 1.1 * IDLE_S
    mount.delegations.create_done(addition, delegation.number, 0, mount.now_s)
    assert not len(mount.delegations) and mount.given_back == [(7, delegation.number)]


def test_what_is_not_used_is_given_back() -> None:
    mount = Mount()
    delegation = mount.hold()
    assert mount.delegations.expire(mount.now_s + 0.9 * IDLE_S)
    assert not mount.delegations.expire(mount.now_s + 1.1 * IDLE_S) and mount.given_back == [(7, delegation.number)]
    mount.want()
    assert mount.delegations.expire(mount.now_s) is False


@pytest.mark.parametrize("answer", ["no", "failure"])
def test_a_delegation_that_is_not_granted(answer: str) -> None:
    mount = Mount()
    mount.want()
    delegation = mount.ask()
    if answer == "no":
        assert not mount.delegations.request_answered(delegation, 0, mount.now_s, mount.now_s)
    else:
        mount.delegations.request_failed(delegation, mount.now_s)
    assert mount.given_back == [(7, delegation.number)] and not len(
        mount.delegations
    )  # it may have been granted all the same
    assert not mount.delegations.request_answered(delegation, delegation.number, mount.now_s, mount.now_s)
    assert not mount.delegations.insert_names(delegation, [b"a"], mount.now_s, more=False)
    mount.delegations.request_failed(delegation, mount.now_s)
    assert len(mount.given_back) == 1


def test_names_that_were_removed_here_are_absent() -> None:
    mount = Mount()
    delegation = mount.hold(b"a", b"b")
    mount.remove(b"a")
    assert mount.absent(b"a") and not mount.absent(b"b")
    mount.add(b"a", delegation.number)
    assert not mount.absent(b"a")
    mount.remove(b"a")
    assert mount.absent(b"a")
    mount.remove(b"never")


def test_a_name_that_comes_while_it_goes_stays() -> None:
    mount = Mount()
    delegation = mount.hold(b"a", b"b")
    removal = mount.delegations.begin_unlink(7, b"a")
    mount.add(b"a", delegation.number)
    mount.delegations.unlink_done(removal)
    addition = mount.delegations.begin_create(7, b"b", 50, mount.now_s)
    removal = mount.delegations.begin_unlink(7, b"b")
    mount.delegations.create_done(addition, delegation.number, 0, mount.now_s)
    mount.delegations.unlink_done(removal)
    assert not mount.absent(b"a") and not mount.absent(b"b")


def test_a_name_of_unknown_outcome_stays() -> None:
    mount = Mount()
    delegation = mount.hold()
    mount.delegations.create_failed(mount.delegations.begin_create(7, b"a", 50, mount.now_s))
    mount.delegations.create_failed(mount.delegations.begin_create(8, b"b", 51, mount.now_s))
    mount.remove(b"a")
    mount.add(b"a", delegation.number)
    mount.remove(b"a")
    assert not mount.absent(b"a")


def test_answers_to_an_ended_delegation_do_not_touch_the_next_one() -> None:
    mount = Mount()
    mount.hold(b"a")
    removal = mount.delegations.begin_unlink(7, b"a")
    mount.delegations.return_all()
    mount.hold(b"a")
    mount.delegations.unlink_done(removal)
    assert not mount.absent(b"a")


def test_what_older_requests_may_still_do_counts_as_done_by_others() -> None:
    mount = Mount()
    mount.want()
    mount.delegations.begin_create(7, b"a", 50, mount.now_s)
    mount.delegations.begin_create(8, b"b", 40, mount.now_s)
    assert mount.delegations.begin_request(7, 60, mount.now_s)[1] == 50
    mount = Mount()
    mount.want()
    assert mount.delegations.begin_request(7, 60, mount.now_s)[1] == 60
    mount = Mount()
    mount.want()
    mount.delegations.begin_create(7, b"a", 50, mount.now_s)
    mount.delegations.create_failed(mount.delegations.begin_create(7, b"c", 55, mount.now_s))
    assert mount.delegations.begin_request(7, 60, mount.now_s)[1] == 56


def test_a_name_that_was_there_already_says_nothing() -> None:
    mount = Mount()
    mount.hold(b"a")
    mount.delegations.create_found_existing(mount.delegations.begin_create(7, b"a", 50, mount.now_s))
    assert mount.absent() and not mount.absent(b"a") and not mount.given_back


def test_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_NAMES", 100)
    mount = Mount()
    mount.want()
    delegation = mount.ask()
    mount.delegations.request_answered(delegation, delegation.number, mount.now_s, mount.now_s)
    assert not mount.delegations.insert_names(
        delegation, [b"%d" % number for number in range(101)], mount.now_s, more=True
    )
    assert (
        mount.given_back == [(7, delegation.number)]
        and not len(mount.delegations)
        and not mount.delegations._name_count
    )
    mount.now_s += PAUSE_S
    for number in range(CREATES_BEFORE_REQUEST):
        mount.add(b"%d" % number)
    assert not mount.wanted
    mount.now_s += LARGE_PAUSE_S
    delegation = mount.hold(*(b"%d" % number for number in range(90)))
    for number in range(90, 101):
        mount.add(b"%d" % number, delegation.number)
    assert not len(mount.delegations) and not mount.delegations._name_count
    monkeypatch.setattr(bounds, "MAX_NAMES_TOGETHER", 50)
    mount.now_s += LARGE_PAUSE_S
    mount.want()
    delegation = mount.ask()
    assert not mount.delegations.insert_names(
        delegation, [b"%d" % number for number in range(51)], mount.now_s, more=False
    )
    monkeypatch.setattr(bounds, "MAX_DELEGATIONS", 0)
    mount.now_s += LARGE_PAUSE_S
    for number in range(CREATES_BEFORE_REQUEST):
        mount.add(b"%d" % number)
    assert not mount.wanted


def test_without_room_a_directory_is_given_up_though_several_names_are_on_their_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mount = Mount()
    mount.want()
    pending = [mount.delegations.begin_create(7, name, 100, mount.now_s) for name in (b"a", b"b", b"c")]
    monkeypatch.setattr(bounds, "MAX_NAMES_TOGETHER", 0)
    delegation = mount.ask()
    assert not len(mount.delegations) and not mount.delegations._name_count
    assert not mount.delegations.request_answered(delegation, delegation.number, mount.now_s, mount.now_s)
    for create in pending:
        mount.delegations.create_done(create, 0, 0, mount.now_s)
