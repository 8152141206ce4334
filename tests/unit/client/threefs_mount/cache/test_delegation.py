"""What this mount makes of its claims; what they are good for is shown in tests/contract/test_delegations.py."""

import pytest
from threefs_mount.cache import delegation as bounds
from threefs_mount.cache.delegation import FIRST_NAMES, IDLE_S, LARGE_PAUSE_S, PAUSE_S, Delegation, DirectoryDelegations

from threefs.delegations import CLAIM_S


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
        return self.claims.lacks(directory, name, self.now_s)

    def add(self, name: bytes, claim: int = 0, recalled: int = 0, *, looked: bool = True) -> None:
        """A look that has to be asked for, a name, and its answer."""
        if looked and not self.absent(name):
            self.claims.absent(7, self.now_s)
        self.number += 1
        addition = self.claims.adding(7, name, self.number, self.now_s)
        self.claims.added(addition, claim, recalled, self.now_s)

    def remove(self, name: bytes) -> None:
        self.claims.removed(self.claims.removing(7, name))

    def want(self) -> None:
        for number in range(FIRST_NAMES):
            self.add(b"%d" % number)
        assert self.wanted == [7]

    def ask(self) -> Delegation:
        self.number += 1
        self.wanted.remove(7)
        claim, _ = self.claims.ask(7, self.number, self.now_s)
        return claim

    def hold(self, *names: bytes) -> Delegation:
        self.want()
        claim = self.ask()
        assert self.claims.answered(claim, claim.number, self.now_s, self.now_s)
        assert self.claims.listed(claim, names, self.now_s, more=False)
        return claim


def test_who_looks_and_adds_names_again_and_again_wants_the_directory() -> None:
    mount = Mount()
    for number in range(FIRST_NAMES - 1):
        mount.add(b"%d" % number)
    assert not mount.wanted
    mount.add(b"last", looked=False)
    assert not mount.wanted
    mount.add(b"last")
    mount.add(b"more")
    assert mount.wanted == [7]


def test_names_that_nobody_looked_for_and_old_ones_do_not_count() -> None:
    mount = Mount()
    for number in range(3 * FIRST_NAMES):
        mount.add(b"%d" % number, looked=False)
    for number in range(3 * FIRST_NAMES):
        mount.now_s += 1.1 if number % 4 == 0 else 0.0
        mount.add(b"%d" % number)
    assert not mount.wanted
    silent = Mount(enabled=False)
    for number in range(3 * FIRST_NAMES):
        silent.add(b"%d" % number)
    assert not silent.wanted


def test_absent_is_what_is_not_listed_and_was_not_added() -> None:
    mount = Mount()
    mount.want()
    claim = mount.ask()
    mount.add(b"early")
    assert mount.claims.answered(claim, claim.number, mount.now_s, mount.now_s)
    assert mount.claims.listed(claim, [b"a"], mount.now_s, more=True) and not mount.absent()
    mount.add(b"late", claim.number)
    assert mount.claims.listed(claim, [b"b"], mount.now_s, more=False) and mount.absent()
    for name in (b"a", b"b", b"early", b"late", b"n" * 256):
        assert not mount.absent(name)
    assert mount.absent(b"n" * 255) and not mount.absent(directory=8)


def test_it_counts_from_the_sending_of_the_last_name_whose_answer_says_so() -> None:
    mount = Mount()
    claim = mount.hold()
    mount.now_s += 0.9 * CLAIM_S
    addition = mount.claims.adding(7, b"a", 50, mount.now_s)
    assert mount.absent()
    mount.now_s += 0.2 * CLAIM_S
    assert not mount.absent()
    mount.claims.added(addition, claim.number, 0, mount.now_s)
    assert mount.absent()
    mount.now_s += 0.9 * CLAIM_S
    assert not mount.absent()
    mount.add(b"b", claim.number)
    assert mount.absent()


def test_answers_may_cross() -> None:
    mount = Mount()
    claim = mount.hold()
    older = mount.claims.adding(7, b"a", 50, mount.now_s)
    newer = mount.claims.adding(7, b"b", 51, mount.now_s + 0.1)
    mount.claims.added(newer, claim.number, 0, mount.now_s + 0.1)
    mount.claims.added(older, claim.number, 0, mount.now_s + 0.1)
    assert claim.stands_s == mount.now_s + 0.1


def test_what_is_recalled_is_given_up_then_given_back_and_left_alone_for_a_while() -> None:
    mount = Mount()
    claim = mount.hold()
    crossing = mount.claims.adding(7, b"a", 50, mount.now_s)
    mount.add(b"b", 0, claim.number)
    assert not mount.absent() and mount.given_back == [(7, claim.number)] and not len(mount.claims)
    mount.claims.added(crossing, claim.number, 0, mount.now_s)
    assert not mount.absent() and len(mount.given_back) == 1
    for number in range(2 * FIRST_NAMES):
        mount.add(b"%d" % number)
    assert not mount.wanted
    mount.now_s += PAUSE_S
    mount.want()


def test_what_somebody_waits_for_is_given_back_even_if_it_is_not_known() -> None:
    mount = Mount()
    mount.add(b"a", 0, 33)
    assert mount.given_back == [(7, 33)]


def test_a_claim_that_has_ended_unnoticed_is_given_up() -> None:
    for answer in (0, 99):
        mount = Mount()
        claim = mount.hold()
        mount.add(b"a", answer)
        assert not mount.absent() and mount.given_back == [(7, claim.number)]


def test_answers_to_what_was_sent_before_the_grant_say_nothing() -> None:
    mount = Mount()
    mount.want()
    early = mount.claims.adding(7, b"early", 50, mount.now_s)
    claim = mount.ask()
    mount.claims.answered(claim, claim.number, mount.now_s, mount.now_s)
    mount.claims.listed(claim, [], mount.now_s, more=False)
    mount.claims.added(early, 0, 0, mount.now_s)
    assert mount.absent() and not mount.absent(b"early")


def test_after_a_silence_nothing_is_made_of_a_late_answer() -> None:
    mount = Mount()
    claim = mount.hold()
    addition = mount.claims.adding(7, b"a", 50, mount.now_s)
    mount.now_s += 1.1 * IDLE_S
    mount.claims.added(addition, claim.number, 0, mount.now_s)
    assert not len(mount.claims) and mount.given_back == [(7, claim.number)]


def test_what_is_not_used_is_given_back() -> None:
    mount = Mount()
    claim = mount.hold()
    assert mount.claims.expire(mount.now_s + 0.9 * IDLE_S)
    assert not mount.claims.expire(mount.now_s + 1.1 * IDLE_S) and mount.given_back == [(7, claim.number)]
    mount.want()
    assert mount.claims.expire(mount.now_s) is False


@pytest.mark.parametrize("answer", ["no", "failure"])
def test_a_claim_that_is_not_granted(answer: str) -> None:
    mount = Mount()
    mount.want()
    claim = mount.ask()
    if answer == "no":
        assert not mount.claims.answered(claim, 0, mount.now_s, mount.now_s)
    else:
        mount.claims.unknown(claim, mount.now_s)
    assert mount.given_back == [(7, claim.number)] and not len(mount.claims)  # it may have been granted all the same
    assert not mount.claims.answered(claim, claim.number, mount.now_s, mount.now_s)
    assert not mount.claims.listed(claim, [b"a"], mount.now_s, more=False)
    mount.claims.unknown(claim, mount.now_s)
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
    removal = mount.claims.removing(7, b"a")
    mount.add(b"a", claim.number)
    mount.claims.removed(removal)
    addition = mount.claims.adding(7, b"b", 50, mount.now_s)
    removal = mount.claims.removing(7, b"b")
    mount.claims.added(addition, claim.number, 0, mount.now_s)
    mount.claims.removed(removal)
    assert not mount.absent(b"a") and not mount.absent(b"b")


def test_a_name_of_unknown_outcome_stays() -> None:
    mount = Mount()
    claim = mount.hold()
    mount.claims.failed(mount.claims.adding(7, b"a", 50, mount.now_s))
    mount.claims.failed(mount.claims.adding(8, b"b", 51, mount.now_s))
    mount.remove(b"a")
    mount.add(b"a", claim.number)
    mount.remove(b"a")
    assert not mount.absent(b"a")


def test_what_an_ended_claim_was_told_does_not_touch_the_next_one() -> None:
    mount = Mount()
    mount.hold(b"a")
    removal = mount.claims.removing(7, b"a")
    mount.claims.clear()
    mount.hold(b"a")
    mount.claims.removed(removal)
    assert not mount.absent(b"a")


def test_what_older_requests_may_still_do_counts_as_done_by_others() -> None:
    mount = Mount()
    mount.want()
    mount.claims.adding(7, b"a", 50, mount.now_s)
    mount.claims.adding(8, b"b", 40, mount.now_s)
    assert mount.claims.ask(7, 60, mount.now_s)[1] == 50
    mount = Mount()
    mount.want()
    assert mount.claims.ask(7, 60, mount.now_s)[1] == 60
    mount = Mount()
    mount.want()
    mount.claims.adding(7, b"a", 50, mount.now_s)
    mount.claims.failed(mount.claims.adding(7, b"c", 55, mount.now_s))
    assert mount.claims.ask(7, 60, mount.now_s)[1] == 56


def test_a_name_that_was_there_already_says_nothing() -> None:
    mount = Mount()
    mount.hold(b"a")
    mount.claims.found(mount.claims.adding(7, b"a", 50, mount.now_s))
    assert mount.absent() and not mount.absent(b"a") and not mount.given_back


def test_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MOST_NAMES", 100)
    mount = Mount()
    mount.want()
    claim = mount.ask()
    mount.claims.answered(claim, claim.number, mount.now_s, mount.now_s)
    assert not mount.claims.listed(claim, [b"%d" % number for number in range(101)], mount.now_s, more=True)
    assert mount.given_back == [(7, claim.number)] and not len(mount.claims) and not mount.claims._names
    mount.now_s += PAUSE_S
    for number in range(FIRST_NAMES):
        mount.add(b"%d" % number)
    assert not mount.wanted
    mount.now_s += LARGE_PAUSE_S
    claim = mount.hold(*(b"%d" % number for number in range(90)))
    for number in range(90, 101):
        mount.add(b"%d" % number, claim.number)
    assert not len(mount.claims) and not mount.claims._names
    monkeypatch.setattr(bounds, "MOST_NAMES_TOGETHER", 50)
    mount.now_s += LARGE_PAUSE_S
    mount.want()
    claim = mount.ask()
    assert not mount.claims.listed(claim, [b"%d" % number for number in range(51)], mount.now_s, more=False)
    monkeypatch.setattr(bounds, "MOST_CLAIMS", 0)
    mount.now_s += LARGE_PAUSE_S
    for number in range(FIRST_NAMES):
        mount.add(b"%d" % number)
    assert not mount.wanted
