"""The checker of histories of names: it accepts what one order explains, and nothing else."""

import random
from dataclasses import replace

import pytest

from tests.chaos.names import place_of
from tests.harness.name_history import OPEN_S, Act, Deed, NameHistory, State, apply, judge, violations


def deed(
    act: Act, name: str, begin: float, end: float, done: bool | None = True, token: str = "", other: str = ""
) -> Deed:
    return Deed("c", act, name, begin, end, done, other, token)


def make(token: str, begin: float, end: float, done: bool | None = True, name: str = "a") -> Deed:
    return deed(Act.MAKE, name, begin, end, done, token)


def look(token: str, begin: float, end: float, name: str = "a") -> Deed:
    return deed(Act.LOOK, name, begin, end, True, token)


def test_one_after_the_other() -> None:
    assert not judge([make("x", 0, 1), look("x", 2, 3), deed(Act.REMOVE, "a", 4, 5), look("", 6, 7)])


@pytest.mark.parametrize(
    "history",
    [
        [make("x", 0, 1), look("", 2, 3)],  # an acknowledged name is lost
        [make("x", 0, 1), make("y", 2, 3)],  # two creations of one name
        [make("x", 0, 1), make("y", 2, 3, False), deed(Act.REMOVE, "a", 4, 5), look("x", 6, 7)],  # it came back
        [make("x", 0, 1), deed(Act.RENAME, "a", 2, 3, True, "", "b"), look("x", 4, 5)],  # both names
        [make("x", 0, 1, None), look("x", 2, 3), look("", 4, 5)],  # seen, then not
        [look("x", 0, 1), make("x", 2, 3)],  # seen before it was made
        [deed(Act.REMOVE, "a", 0, 1)],
    ],
)
def test_a_history_that_no_order_explains(history: list[Deed]) -> None:
    assert "no order" in judge(history)


def test_calls_at_the_same_time_take_effect_in_any_order() -> None:
    assert not judge([make("x", 0, 9), look("", 1, 2), look("x", 3, 4), deed(Act.REMOVE, "a", 3, 8), look("", 9, 10)])


def test_an_unknown_outcome_may_come_late_or_never() -> None:
    assert not judge([make("x", 0, 0, None), look("", 5, 6), look("x", 7, 8)])
    assert not judge([make("x", 0, 0, None), make("y", 5, 6), look("y", 7, 8)])


def test_an_abandoned_write_has_no_effect_when_no_service_works_on_it_any_more() -> None:
    late = 1 + OPEN_S
    assert not judge(
        [make("x", 0, 1, None), look("", 5, 6), look("x", late - 2, late - 1), look("x", late + 8, late + 9)]
    )
    assert "no order" in judge([make("x", 0, 1, None), look("", late + 5, late + 6), look("x", late + 7, late + 8)])


def test_a_rename_touches_two_names_at_once() -> None:
    history = [
        make("x", 0, 1),
        make("y", 0, 1, name="b"),
        deed(Act.RENAME, "a", 2, 3, True, "", "b"),
        look("", 4, 5),
        look("x", 4, 5, "b"),
    ]
    assert not judge(history)
    assert "no order" in judge([*history[:-1], look("y", 4, 5, "b")])


def test_a_rename_through_a_mount_may_have_no_effect() -> None:
    """To its kernel both names were the same file: one as it looked it up before another client renamed it."""
    renames = [deed(Act.RENAME, "a", begin, begin + 1, True, "", "b") for begin in (2, 4)]
    assert "no order" in judge([make("x", 0, 1), *renames])
    again = replace(renames[1], cached=True)
    assert not judge([make("x", 0, 1), renames[0], again, look("x", 6, 7, "b"), look("", 6, 7)])
    assert not judge([make("x", 0, 1), again, look("x", 6, 7)])
    assert not judge([make("x", 0, 1), again, look("x", 6, 7, "b")])
    assert "no order" in judge([make("x", 0, 1), again, look("x", 6, 7, "b"), look("x", 8, 9)])


def test_random_histories_of_one_order_pass_and_a_changed_look_does_not() -> None:
    dice = random.Random(7)
    history, now = NameHistory(), 0.0
    state: State = ()
    for number in range(400):
        name, other = dice.sample("abc", 2)
        there = dict(state).get(name, "")
        act = dice.choice(list(Act))
        done = not there if act is Act.MAKE else act is Act.LOOK or bool(there)
        token = f"t{number}" if act is Act.MAKE else there if act is Act.LOOK else ""
        begin = now + dice.uniform(-0.5, 0.9)  # it may overlap the one before
        one = deed(act, name, begin, now + 1.5, done, token, other if act is Act.RENAME else "")
        history.groups.setdefault("g", []).append(one)
        after = apply(state, one)
        assert after is not None
        state, now = after, now + 1.0
    assert not violations(history)
    looks = [place for place, one in enumerate(history.groups["g"]) if one.act is Act.LOOK]
    history.groups["g"].append(look("never made", now + 5, now + 6))
    assert looks and len(violations(history)) == 1


def test_many_unknown_outcomes_at_the_same_time_are_decided() -> None:
    """A mount that died answers nothing for a minute, and every program on it tries again."""
    dice = random.Random(11)
    lost = []
    for number in range(120):
        name, other = dice.sample("abc", 2)
        act = dice.choice([Act.MAKE, Act.REMOVE, Act.RENAME])
        token = f"t{number}" if act is Act.MAKE else ""
        lost.append(deed(act, name, number / 10, number / 10 + 1, None, token, other if act is Act.RENAME else ""))
    seen = [look("t3" if lost[3].act is Act.MAKE else "", 20, 21, lost[3].name), make("x", 22, 23, False, "b")]
    assert not judge([*lost, *seen, make("y", 24, 25, name="c"), look("y", 26, 27, "c")])
    assert "no order" in judge([*lost, *seen, look("never made", 26, 27, "c")])


def test_groups_have_their_own_names() -> None:
    assert len({place_of(group, name) for group in range(3) for name in "abc"}) == 9
