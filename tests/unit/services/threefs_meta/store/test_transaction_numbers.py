"""Which numbers of a transaction no inode has got."""

import pytest
from threefs_meta.store.transaction_numbers import TransactionNumbers

from threefs.errors import Conflict, MaybeCommitted, NotFound, ThreefsError


def taken(count: int) -> TransactionNumbers:
    numbers = TransactionNumbers()
    for _ in range(count):
        numbers.take()
    return numbers


@pytest.mark.parametrize(("error", "unused"), [(None, 0), (NotFound("x"), 3), (Conflict("x"), 3)])
def test_what_is_not_committed_uses_none(error: ThreefsError | None, unused: int) -> None:
    numbers = taken(3)
    numbers.ended(error)
    assert numbers.unused == unused


def test_each_attempt_takes_numbers_of_its_own() -> None:
    numbers = taken(2)
    numbers.failed(Conflict("x"))
    numbers.take()
    numbers.ended(None)
    assert numbers.unused == 2


def test_what_is_rolled_back_is_unused_whatever_becomes_of_the_rest() -> None:
    for error, unused in ((None, 2), (NotFound("x"), 3)):
        numbers = taken(1)
        numbers.savepoint()
        numbers.take()
        numbers.take()
        numbers.rollback()
        numbers.ended(error)
        assert numbers.unused == unused


def test_an_attempt_of_unknown_outcome_was_committed_if_no_later_one_takes_numbers_or_fails() -> None:
    found, again, failed, given_up, in_part = (taken(2) for _ in range(5))
    for numbers in (found, again, failed, given_up, in_part):
        numbers.failed(MaybeCommitted("x"))
    again.take()
    found.ended(None)
    again.ended(None)
    failed.ended(NotFound("x"))
    given_up.ended(MaybeCommitted("x"))
    in_part.found_results()  # of some changes of a batch; the others are made
    in_part.take()
    in_part.ended(None)
    assert [numbers.unused for numbers in (found, again, failed, given_up, in_part)] == [0, 2, 2, 0, 0]
