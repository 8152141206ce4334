"""What this mount makes of its claims; what they are good for is shown in tests/contract/test_delegations.py."""

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
        self.claims = DirectoryDelegations(
            self.wanted.append, lambda *claim: self.given_back.append(claim), enabled=enabled
        )
        self.now_s = 100.0
        self.number = 0

    def absent(self, name: bytes = b"x", directory: int = 7) -> bool:
        return self.claims.is_negative(directory, name, self.now_s)

    def add(self, name: bytes, claim: int = 0, recalled: int = 0, *, looked: bool = True) -> None:
        """A look that has to be asked for, a name, and its answer."""
        if looked and not self.absent(name):
            self.claims.record_negative_lookup(7, self.now_s)
        self.number += 1
        addition = self.claims.begin_create(7, name, self.number, self.now_s)
        self.claims.create_done(addition, claim, recalled, self.now_s)

    def remove(self, name: bytes) -> None:
        self.claims.unlink_done(self.claims.begin_unlink(7, name))

    def want(self) -> None:
        for number in range(CREATES_BEFORE_REQUEST):
            self.add(b"%d" % number)
        assert self.wanted == [7]

    def ask(self) -> Delegation:
        self.number += 1
        self.wanted.remove(7)
        claim, _ = self.claims.begin_request(7, self.number, self.now_s)
        return claim

    def hold(self, *names: bytes) -> Delegation:
        self.want()
        claim = self.ask()
        assert self.claims.request_answered(claim, claim.number, self.now_s, self.now_s)
        assert self.claims.insert_names(claim, names, self.now_s, more=False)
        return claim


def test_who_looks_and_adds_names_again_and_again_wants_the_directory() -> None:
    mount = Mount()
    for number in range(CREATES_BEFORE_REQUEST - 1):
        mount.add(b"%d" % number)
    assert not mount.wanted
    mount.add(b"last", looked=False)
    assert not mount.wanted
    mount.add(b"last")
    mount.add(b"more")
    assert mount.wanted == [7]


def test_names_that_nobody_looked_for_and_old_ones_do_not_count() -> None:
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
    claim = mount.ask()
    mount.add(b"early")
    assert mount.claims.request_answered(claim, claim.number, mount.now_s, mount.now_s)
    assert mount.claims.insert_names(claim, [b"a"], mount.now_s, more=True) and not mount.absent()
    mount.add(b"late", claim.number)
    assert mount.claims.insert_names(claim, [b"b"], mount.now_s, more=False) and mount.absent()
    for name in (b"a", b"b", b"early", b"late", b"n" * 256):
        assert not mount.absent(name)
    assert mount.absent(b"n" * 255) and not mount.absent(directory=8)


def test_it_counts_from_the_sending_of_the_last_name_whose_answer_says_so() -> None:
    mount = Mount()
    claim = mount.hold()
    mount.now_s += 0.9 * DELEGATION_S
    addition = mount.claims.begin_create(7, b"a", 50, mount.now_s)
    assert mount.absent()
    mount.now_s += 0.2 * DELEGATION_S
    assert not mount.absent()
    mount.claims.create_done(addition, claim.number, 0, mount.now_s)
    assert mount.absent()
    mount.now_s += 0.9 * DELEGATION_S
    assert not mount.absent()
    mount.add(b"b", claim.number)
    assert mount.absent()


def test_answers_may_cross() -> None:
    mount = Mount()
    claim = mount.hold()
    older = mount.claims.begin_create(7, b"a", 50, mount.now_s)
    newer = mount.claims.begin_create(7, b"b", 51, mount.now_s + 0.1)
    mount.claims.create_done(newer, claim.number, 0, mount.now_s + 0.1)
    mount.claims.create_done(older, claim.number, 0, mount.now_s + 0.1)
    assert claim.confirmed_s == mount.now_s + 0.1


def test_a_recalled_delegation_is_dropped_then_returned_and_not_requested_for_a_while() -> None:
    mount = Mount()
    claim = mount.hold()
    crossing = mount.claims.begin_create(7, b"a", 50, mount.now_s)
    mount.add(b"b", 0, claim.number)
    assert not mount.absent() and mount.given_back == [(7, claim.number)] and not len(mount.claims)
    mount.claims.create_done(crossing, claim.number, 0, mount.now_s)
    assert not mount.absent() and len(mount.given_back) == 1
    for number in range(2 * CREATES_BEFORE_REQUEST):
        mount.add(b"%d" % number)
    assert not mount.wanted
    mount.now_s += PAUSE_S
    mount.want()


def test_what_somebody_waits_for_is_given_back_even_if_it_is_not_known() -> None:
    mount = Mount()
    mount.add(b"a", 0, 33)
    assert mount.given_back == [(7, 33)]


def test_a_delegation_that_has_ended_unnoticed_is_dropped() -> None:
    for answer in (0, 99):
        mount = Mount()
        claim = mount.hold()
        mount.add(b"a", answer)
        assert not mount.absent() and mount.given_back == [(7, claim.number)]


def test_answers_to_what_was_sent_before_the_grant_say_nothing() -> None:
    mount = Mount()
    mount.want()
    early = mount.claims.begin_create(7, b"early", 50, mount.now_s)
    claim = mount.ask()
    mount.claims.request_answered(claim, claim.number, mount.now_s, mount.now_s)
    mount.claims.insert_names(claim, [], mount.now_s, more=False)
    mount.claims.create_done(early, 0, 0, mount.now_s)
    assert mount.absent() and not mount.absent(b"early")


def test_after_a_silence_nothing_is_made_of_a_late_answer() -> None:
    mount = Mount()
    claim = mount.hold()
    addition = mount.claims.begin_create(7, b"a", 50, mount.now_s)
    mount.now_s += 1.1 * IDLE_S
    mount.claims.create_done(addition, claim.number, 0, mount.now_s)
    assert not len(mount.claims) and mount.given_back == [(7, claim.number)]


def test_what_is_not_used_is_given_back() -> None:
    mount = Mount()
    claim = mount.hold()
    assert mount.claims.expire(mount.now_s + 0.9 * IDLE_S)
    assert not mount.claims.expire(mount.now_s + 1.1 * IDLE_S) and mount.given_back == [(7, claim.number)]
    mount.want()
    assert mount.claims.expire(mount.now_s) is False


@pytest.mark.parametrize("answer", ["no", "failure"])
def test_a_delegation_that_is_not_granted(answer: str) -> None:
    mount = Mount()
    mount.want()
    claim = mount.ask()
    if answer == "no":
        assert not mount.claims.request_answered(claim, 0, mount.now_s, mount.now_s)
    else:
        mount.claims.request_failed(claim, mount.now_s)
    assert mount.given_back == [(7, claim.number)] and not len(mount.claims)  # it may have been granted all the same
    assert not mount.claims.request_answered(claim, claim.number, mount.now_s, mount.now_s)
    assert not mount.claims.insert_names(claim, [b"a"], mount.now_s, more=False)
    mount.claims.request_failed(claim, mount.now_s)
    assert len(mount.given_back) == 1


def test_names_that_were_removed_here_are_absent() -> None:
    mount = Mount()
    claim = mount.hold(b"a", b"b")
    mount.remove(b"a")
    assert mount.absent(b"a") and not mount.absent(b"b")
    mount.add(b"a", claim.number)
    assert not mount.absent(b"a")
    mount.remove(b"a")
    assert mount.absent(b"a")
    mount.remove(b"never")


def test_a_name_that_comes_while_it_goes_stays() -> None:
    mount = Mount()
    claim = mount.hold(b"a", b"b")
    removal = mount.claims.begin_unlink(7, b"a")
    mount.add(b"a", claim.number)
    mount.claims.unlink_done(removal)
    addition = mount.claims.begin_create(7, b"b", 50, mount.now_s)
    removal = mount.claims.begin_unlink(7, b"b")
    mount.claims.create_done(addition, claim.number, 0, mount.now_s)
    mount.claims.unlink_done(removal)
    assert not mount.absent(b"a") and not mount.absent(b"b")


def test_a_name_of_unknown_outcome_stays() -> None:
    mount = Mount()
    claim = mount.hold()
    mount.claims.create_failed(mount.claims.begin_create(7, b"a", 50, mount.now_s))
    mount.claims.create_failed(mount.claims.begin_create(8, b"b", 51, mount.now_s))
    mount.remove(b"a")
    mount.add(b"a", claim.number)
    mount.remove(b"a")
    assert not mount.absent(b"a")


def test_answers_to_an_ended_delegation_do_not_touch_the_next_one() -> None:
    mount = Mount()
    mount.hold(b"a")
    removal = mount.claims.begin_unlink(7, b"a")
    mount.claims.return_all()
    mount.hold(b"a")
    mount.claims.unlink_done(removal)
    assert not mount.absent(b"a")


def test_what_older_requests_may_still_do_counts_as_done_by_others() -> None:
    mount = Mount()
    mount.want()
    mount.claims.begin_create(7, b"a", 50, mount.now_s)
    mount.claims.begin_create(8, b"b", 40, mount.now_s)
    assert mount.claims.begin_request(7, 60, mount.now_s)[1] == 50
    mount = Mount()
    mount.want()
    assert mount.claims.begin_request(7, 60, mount.now_s)[1] == 60
    mount = Mount()
    mount.want()
    mount.claims.begin_create(7, b"a", 50, mount.now_s)
    mount.claims.create_failed(mount.claims.begin_create(7, b"c", 55, mount.now_s))
    assert mount.claims.begin_request(7, 60, mount.now_s)[1] == 56


def test_a_name_that_was_there_already_says_nothing() -> None:
    mount = Mount()
    mount.hold(b"a")
    mount.claims.create_found_existing(mount.claims.begin_create(7, b"a", 50, mount.now_s))
    assert mount.absent() and not mount.absent(b"a") and not mount.given_back


def test_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_NAMES", 100)
    mount = Mount()
    mount.want()
    claim = mount.ask()
    mount.claims.request_answered(claim, claim.number, mount.now_s, mount.now_s)
    assert not mount.claims.insert_names(claim, [b"%d" % number for number in range(101)], mount.now_s, more=True)
    assert mount.given_back == [(7, claim.number)] and not len(mount.claims) and not mount.claims._name_count
    mount.now_s += PAUSE_S
    for number in range(CREATES_BEFORE_REQUEST):
        mount.add(b"%d" % number)
    assert not mount.wanted
    mount.now_s += LARGE_PAUSE_S
    claim = mount.hold(*(b"%d" % number for number in range(90)))
    for number in range(90, 101):
        mount.add(b"%d" % number, claim.number)
    assert not len(mount.claims) and not mount.claims._name_count
    monkeypatch.setattr(bounds, "MAX_NAMES_TOGETHER", 50)
    mount.now_s += LARGE_PAUSE_S
    mount.want()
    claim = mount.ask()
    assert not mount.claims.insert_names(claim, [b"%d" % number for number in range(51)], mount.now_s, more=False)
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
    pending = [mount.claims.begin_create(7, name, 100, mount.now_s) for name in (b"a", b"b", b"c")]
    monkeypatch.setattr(bounds, "MAX_NAMES_TOGETHER", 0)
    claim = mount.ask()
    assert not len(mount.claims) and not mount.claims._name_count
    assert not mount.claims.request_answered(claim, claim.number, mount.now_s, mount.now_s)
    for create in pending:
        mount.claims.create_done(create, 0, 0, mount.now_s)
