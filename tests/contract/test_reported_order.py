"""An order that is told is never believed: whatever it explains, the search explains as well."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contract.test_linearizability import BAD, GOOD, PADDED, drawn, oracle, r, w
from tests.harness.history import Kind
from tests.harness.linearizability import check
from tests.harness.reported_order import explains


@pytest.mark.parametrize("name", GOOD)
def test_the_order_that_a_search_has_found_explains(name: str) -> None:
    order = [one for one in check(GOOD[name]).order if one.kind is not Kind.READ]
    assert explains(GOOD[name], order)


@pytest.mark.parametrize("name", BAD)
def test_nothing_explains_what_has_no_order(name: str) -> None:
    changes = [one for one in BAD[name] if one.kind is not Kind.READ]
    assert not explains(BAD[name], changes) and not explains(BAD[name], changes[::-1])


def test_an_order_that_lacks_something_or_has_it_twice_or_too_early_explains_nothing() -> None:
    one, two = w(0, 1, b"a"), w(2, 3, b"b")
    assert explains([one, two, r(4, 5, b"b")], [one, two])
    assert not explains([one, two, r(4, 5, b"b")], [two])
    assert not explains([one, two, r(4, 5, b"b")], [two, one])
    assert not explains([one, two, r(4, 5, b"a")], [one, two, one]), "that would be applied twice"
    assert not explains([one, r(2, 3, b"b"), later := w(4, 5, b"b")], [one, later])


def test_a_pending_operation_takes_effect_only_if_it_is_reported() -> None:
    one, never = w(0, 1, b"a"), w(0, None, b"b")
    assert explains([one, never, r(4, 5, b"a")], [one])
    assert not explains([one, never, r(4, 5, b"b")], [one])
    assert explains([one, never, r(4, 5, b"b")], [one, never])


@settings(max_examples=1500, deadline=None)
@given(st.integers(0, 1 << 40), st.booleans(), PADDED, st.booleans())
def test_a_history_that_an_order_explains_is_explained_by_brute_force(
    seed: int, whole: bool, padded: float, spoilt: bool
) -> None:
    dice = random.Random(seed)
    history = drawn(dice, 6, whole=whole, padded=padded)
    if spoilt and history:
        at = dice.randrange(len(history))
        history[at] = dice.choice(history)
    changes = [one for one in history if one.kind is not Kind.READ]
    dice.shuffle(changes)
    order = changes[: dice.randint(0, len(changes))]
    if explains(history, order):
        assert oracle(history)
