"""The judge is judged: histories with known verdicts, and a brute force oracle on random ones."""

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness.history import History, Kind, Operation, Outcome, apply, result_of
from tests.harness.linearizability import Undecided, check, check_versions, violations


def made(kind: Kind, begin: float, end: float | None, **values: object) -> Operation:
    outcome = Outcome.OK if end is not None else Outcome.UNKNOWN
    operation = Operation("c", kind, "chunk", begin, end, outcome)
    return replace(operation, **values)  # type: ignore[arg-type]


def w(begin: float, end: float | None, payload: bytes, offset: int = 0, version: int | None = None) -> Operation:
    return made(Kind.WRITE, begin, end, payload=payload, offset=offset, version=version)


def r(
    begin: float, end: float, result: bytes | None, offset: int = 0, length: int = 8, version: int | None = None
) -> Operation:
    return made(Kind.READ, begin, end, result=result, offset=offset, length=length, version=version)


def p(begin: float, end: float, result: bytes, offset: int = 0) -> Operation:
    """A padded read."""
    return made(Kind.READ, begin, end, result=result, offset=offset, length=len(result), padded=True)


def cut(begin: float, end: float | None, length: int) -> Operation:
    return made(Kind.TRUNCATE, begin, end, length=length)


def grow(begin: float, end: float | None, length: int) -> Operation:
    return made(Kind.EXTEND, begin, end, length=length)


def rm(begin: float, end: float | None) -> Operation:
    return made(Kind.REMOVE, begin, end)


def failed(operation: Operation) -> Operation:
    return replace(operation, outcome=Outcome.FAILED, returned=operation.invoked)


GOOD = {
    "nothing": [],
    "no chunk": [r(0, 1, None)],
    "write, read": [w(0, 1, b"a"), r(2, 3, b"a")],
    "overwritten": [w(0, 1, b"a"), w(2, 3, b"b"), r(4, 5, b"b")],
    "old while writing": [w(0, 1, b"a"), w(2, 5, b"b"), r(3, 4, b"a")],
    "new while writing": [w(0, 1, b"a"), w(2, 5, b"b"), r(3, 4, b"b")],
    "old, then new while writing": [w(0, 1, b"a"), w(2, 9, b"b"), r(3, 4, b"a"), r(5, 6, b"b")],
    "overlapping reads disagree": [w(0, 1, b"a"), w(2, 9, b"b"), r(3, 6, b"b"), r(4, 7, b"a")],
    "writers overlap, first wins": [w(0, 5, b"a"), w(1, 4, b"b"), r(6, 7, b"a")],
    "writers overlap, second wins": [w(0, 5, b"a"), w(1, 4, b"b"), r(6, 7, b"b")],
    "same moment overlaps": [w(0, 1, b"a"), r(1, 2, None)],
    "open write never seen": [w(0, 1, b"a"), w(2, None, b"b"), r(3, 4, b"a")],
    "open write seen": [w(0, 1, b"a"), w(2, None, b"b"), r(3, 4, b"b")],
    "open write seen late": [w(0, 1, b"a"), w(2, None, b"b"), r(3, 4, b"a"), r(50, 51, b"b")],
    "open write hits after another": [w(0, None, b"a"), w(1, 2, b"b"), r(3, 4, b"b"), r(5, 6, b"a")],
    "open write overwritten": [w(0, None, b"a"), r(1, 2, b"a"), w(3, 4, b"b"), r(5, 6, b"b")],
    "two open writes in either order": [w(0, None, b"a"), w(0, None, b"b"), r(1, 2, b"b"), r(3, 4, b"a")],
    "failed write unseen": [failed(w(0, 1, b"a")), r(2, 3, None)],
    "disjoint writes": [w(0, 5, b"aa"), w(1, 4, b"bb", 2), r(6, 7, b"aabb")],
    "part read": [w(0, 1, b"abcdef"), r(2, 3, b"cd", 2, 2)],
    "overlapping writes": [w(0, 1, b"aaaa"), w(2, 3, b"bb", 1), r(4, 5, b"abba")],
    "gap of zeros": [w(0, 1, b"x", 3), r(2, 3, b"\0\0\0x")],
    "gap seen alone": [w(0, 1, b"x", 3), r(2, 3, b"\0\0", 0, 2)],
    "short read": [w(0, 1, b"abc"), r(2, 3, b"c", 2, 8)],
    "read past the end": [w(0, 1, b"abc"), r(2, 3, b"", 5)],
    "truncate cuts": [w(0, 1, b"abc"), cut(2, 3, 1), r(4, 5, b"a")],
    "truncate grows": [w(0, 1, b"a"), cut(2, 3, 3), r(4, 5, b"a\0\0")],
    "truncate makes": [cut(0, 1, 2), r(2, 3, b"\0\0")],
    "truncate to nothing is not removed": [w(0, 1, b"a"), cut(2, 3, 0), r(4, 5, b"")],
    "cut bytes do not come back": [w(0, 1, b"abc"), cut(2, 3, 1), grow(4, 5, 3), r(6, 7, b"a\0\0")],
    "extend does not cut": [w(0, 1, b"abc"), grow(2, 3, 1), r(4, 5, b"abc")],
    "extend makes": [grow(0, 1, 2), r(2, 3, b"\0\0")],
    "empty write makes and fills": [w(0, 1, b"", 2), r(2, 3, b"\0\0")],
    "removed": [w(0, 1, b"a"), rm(2, 3), r(4, 5, None)],
    "removed, written in the middle": [w(0, 1, b"abc"), rm(2, 3), w(4, 5, b"z", 1), r(6, 7, b"\0z")],
    "remove and write overlap": [w(0, 1, b"a"), rm(2, 5), w(3, 4, b"b"), r(6, 7, None)],
    "open remove seen late": [w(0, 1, b"a"), rm(2, None), r(3, 4, b"a"), r(5, 6, None)],
    "open truncate then write": [w(0, 1, b"abcd"), cut(2, None, 2), w(3, 4, b"x", 1), r(5, 6, b"ax")],
    "open write under another": [w(0, 1, b"...."), w(2, None, b"ab", 0), w(3, 4, b"c", 1), r(5, 6, b"ac..")],
    "open write fills a gap": [w(0, None, b"x", 2), w(1, 2, b"y", 2), r(3, 4, b"\0\0y")],
    "concurrent everything": [
        w(0, 9, b"abcd"), cut(0, 9, 2), grow(0, 9, 6), rm(0, 9), w(0, 9, b"zz", 1),
        r(0, 9, b"\0zz"), r(10, 11, b"\0z\0\0\0\0"),
    ],
}  # fmt: skip

BAD = {
    "stale read": [w(0, 1, b"a"), w(2, 3, b"b"), r(4, 5, b"a")],
    "new, then old": [w(0, 1, b"a"), w(2, 9, b"b"), r(3, 4, b"b"), r(5, 6, b"a")],
    "lost acknowledged write": [w(0, 1, b"a"), r(2, 3, None)],
    "read from the future": [r(0, 1, b"a"), w(2, 3, b"a")],
    "never written": [w(0, 1, b"a"), r(2, 3, b"b")],
    "applied twice": [w(0, 1, b"a"), w(2, 3, b"b"), r(4, 5, b"b"), r(6, 7, b"a")],
    "applied twice while under way": [w(0, 9, b"a"), r(1, 2, b"a"), w(3, 4, b"b"), r(5, 6, b"b"), r(7, 8, b"a")],
    "open write vanishes": [w(0, 1, b"a"), w(2, None, b"b"), r(3, 4, b"b"), r(5, 6, b"a")],
    "open write shows, vanishes, shows": [
        w(0, 1, b"a"), w(2, None, b"b"), r(3, 4, b"b"), w(5, 6, b"c"), r(7, 8, b"c"), r(9, 10, b"b"),
    ],
    "open write seen before it began": [r(0, 1, b"a"), w(2, None, b"a")],
    "failed write seen": [failed(w(0, 1, b"a")), r(2, 3, b"a")],
    "torn": [w(0, 1, b"aaaa"), w(2, 5, b"bbbb"), r(3, 4, b"aabb")],
    "torn by two writers": [w(0, 5, b"aaaa"), w(1, 4, b"bbbb"), r(6, 7, b"aabb")],
    "half of a disjoint write": [w(0, 1, b"...."), w(2, 3, b"ab", 1), r(4, 5, b".a..")],
    "two readers see two orders": [
        w(0, 9, b"a"), w(0, 9, b"b"), r(1, 2, b"a"), r(3, 4, b"b"), r(5, 6, b"a"),
    ],
    "crossed parts": [w(0, 9, b"a"), w(0, 9, b"b", 1), r(1, 2, b"a"), r(3, 4, b"\0b")],
    "gap of rubbish": [w(0, 1, b"x", 2), r(2, 3, b"??x")],
    "gap short": [w(0, 1, b"x", 2), r(2, 3, b"\0x")],
    "cut bytes come back": [w(0, 1, b"abc"), cut(2, 3, 1), grow(4, 5, 3), r(6, 7, b"abc")],
    "truncate forgotten": [w(0, 1, b"abc"), cut(2, 3, 1), r(4, 5, b"abc")],
    "extend cuts": [w(0, 1, b"abc"), grow(2, 3, 1), r(4, 5, b"a")],
    "removed is not empty": [w(0, 1, b"a"), rm(2, 3), r(4, 5, b"")],
    "empty is not removed": [cut(0, 1, 0), r(2, 3, None)],
    "comes back after removal": [w(0, 1, b"a"), rm(2, 3), r(4, 5, b"a")],
    "tail survives removal": [w(0, 1, b"abc"), rm(2, 3), w(4, 5, b"z"), r(6, 7, b"zbc")],
    "open remove undone": [w(0, 1, b"a"), rm(2, None), r(3, 4, None), r(5, 6, b"a")],
    "short read of a long chunk": [w(0, 1, b"abcd"), r(2, 3, b"ab")],
    "open writes in a circle": [
        w(0, None, b"a"), w(0, None, b"b"), r(1, 2, b"a"), r(3, 4, b"b"), r(5, 6, b"a"),
    ],
}  # fmt: skip

GOOD_PADDED = {
    "no chunk": [p(0, 1, b"\0\0")],
    "write, read": [w(0, 1, b"xy"), p(2, 3, b"xy")],
    "old while writing": [w(0, 9, b"xy"), p(2, 3, b"\0\0")],
    "new while writing": [w(0, 9, b"xy"), p(2, 3, b"xy")],
    "old, then new while writing": [w(0, 9, b"x"), p(1, 2, b"\0"), p(3, 4, b"x")],
    "writers overlap": [w(0, 5, b"x"), w(1, 6, b"y"), p(7, 8, b"x")],
    "open write never seen": [w(0, None, b"x"), p(1, 2, b"\0"), p(3, 4, b"\0")],
    "open write seen late": [w(0, None, b"x"), p(1, 2, b"\0"), p(30, 40, b"x")],
    "open write hits after another": [w(0, None, b"x"), w(1, 2, b"y"), p(3, 4, b"x")],
    "parts of one chunk": [w(0, 1, b"aa"), w(2, 3, b"b", 1), p(4, 5, b"ab")],
    "gap of zeros": [w(0, 1, b"z", 2), p(2, 3, b"\0\0z")],
    "truncate cuts": [w(0, 1, b"abc"), cut(2, 3, 1), p(4, 5, b"a\0\0")],
    "cut bytes do not come back": [w(0, 1, b"abc"), cut(2, 3, 1), grow(4, 5, 3), p(6, 7, b"a\0\0")],
    "extend does not cut": [w(0, 1, b"abc"), grow(2, 3, 2), p(4, 5, b"abc")],
    "removed": [w(0, 1, b"abc"), rm(2, 3), p(4, 5, b"\0\0\0")],
    "remove and write overlap": [w(0, 9, b"abc"), rm(0, 9), p(10, 11, b"abc")],
    "three at once, seen in one order": [
        w(0, 9, b"x"), w(0, 9, b"y"), w(0, 9, b"z"), p(1, 2, b"y"), p(3, 4, b"z"), p(5, 6, b"x"),
    ],
    "past the end": [w(0, 1, b"abc"), p(2, 3, b"c\0\0", 2), p(2, 3, b"\0\0", 7)],
    "empty is as good as removed": [cut(0, 1, 0), p(2, 3, b"\0"), rm(4, 5), p(6, 7, b"\0")],
    "open write beyond a gap": [w(0, 1, b"ab"), w(2, None, b"z", 4), p(3, 4, b"ab\0\0"), p(5, 6, b"ab\0\0z")],
    "zeros written": [w(0, 1, b"ab"), w(2, 3, b"\0\0"), p(4, 5, b"\0\0\0")],
    "beside reads that tell the end": [w(0, 1, b"abc"), cut(2, 3, 1), p(4, 5, b"a\0\0"), r(4, 5, b"a")],
}  # fmt: skip

BAD_PADDED = {
    "stale read": [w(0, 1, b"x"), w(2, 3, b"y"), p(4, 5, b"x")],
    "lost acknowledged write": [w(0, 1, b"x"), p(2, 3, b"\0")],
    "new, then old": [w(0, 9, b"x"), p(1, 2, b"x"), p(3, 4, b"\0")],
    "read from the future": [p(0, 1, b"x"), w(2, 3, b"x")],
    "never written": [w(0, 1, b"x"), p(2, 3, b"q")],
    "open write vanishes": [w(0, None, b"x"), p(1, 2, b"x"), p(3, 4, b"\0")],
    "open write seen before it began": [p(0, 1, b"x"), w(2, None, b"x")],
    "applied twice": [w(0, 1, b"x"), w(2, 3, b"y"), p(4, 5, b"y"), p(6, 7, b"x")],
    "open write applied twice": [w(0, None, b"x"), p(1, 2, b"x"), w(3, 4, b"y"), p(5, 6, b"y"), p(7, 8, b"x")],
    "torn by two writers": [w(0, 9, b"xx"), w(0, 9, b"yy"), p(10, 11, b"xy")],
    "torn": [w(0, 1, b"xx"), p(2, 3, b"x\0")],
    "seen in two orders": [w(0, 9, b"x"), w(0, 9, b"y"), p(1, 2, b"x"), p(3, 4, b"y"), p(5, 6, b"x")],
    "cut bytes come back": [w(0, 1, b"abc"), cut(2, 3, 1), grow(4, 5, 3), p(6, 7, b"abc")],
    "comes back after removal": [w(0, 1, b"abc"), rm(2, 3), p(4, 5, b"abc")],
    "gap of rubbish": [w(0, 1, b"z", 2), p(2, 3, b"q\0z")],
    "old after new was seen": [w(0, 1, b"x"), w(2, 9, b"y"), p(3, 4, b"y"), p(5, 6, b"x")],
    "rubbish past the end": [w(0, 1, b"abc"), p(2, 3, b"c\0q", 2)],
    "beside a read that tells no chunk": [w(0, 1, b"a"), rm(2, 3), p(4, 5, b"\0"), r(4, 5, b"")],
}  # fmt: skip

GOOD |= {f"{name}, padded": history for name, history in GOOD_PADDED.items()}
BAD |= {f"{name}, padded": history for name, history in BAD_PADDED.items()}


@pytest.mark.parametrize("name", GOOD)
def test_good_histories(name: str) -> None:
    verdict = check(GOOD[name])
    assert verdict.linearizable, verdict.explanation
    assert_witness(GOOD[name], verdict.order)


@pytest.mark.parametrize("name", BAD)
def test_bad_histories(name: str) -> None:
    verdict = check(BAD[name])
    assert not verdict.linearizable
    assert not verdict.order and "no order explains" in verdict.explanation


def assert_witness(history: Sequence[Operation], order: Sequence[Operation]) -> None:
    """An order that the judge names is replayed here, without its help."""
    names = {id(one) for one in history}
    assert len({id(one) for one in order}) == len(order) and all(id(one) in names for one in order)
    sure = {id(one) for one in history if one.outcome is Outcome.OK}
    assert sure <= {id(one) for one in order}
    content = None
    for i, one in enumerate(order):
        assert one.outcome is not Outcome.FAILED
        assert not any(
            later.outcome is Outcome.OK and later.returned is not None and later.returned < one.invoked
            for later in order[i + 1 :]
        )
        assert one.kind is not Kind.READ or result_of(one, content) == one.result
        content = apply(content, one)


def oracle(history: Sequence[Operation]) -> bool:
    """Every choice of open operations, every order."""
    sure = [one for one in history if one.outcome is Outcome.OK]
    opened = [one for one in history if one.outcome is Outcome.UNKNOWN]
    for mask in range(1 << len(opened)):
        chosen = sure + [one for i, one in enumerate(opened) if mask >> i & 1]
        if any(_fits(order) for order in permutations(chosen)):
            return True
    return False


def _fits(order: Sequence[Operation]) -> bool:
    content = None
    for i, one in enumerate(order):
        for later in order[i + 1 :]:
            if later.outcome is Outcome.OK and later.returned is not None and later.returned < one.invoked:
                return False
        if one.kind is Kind.READ and result_of(one, content) != one.result:
            return False
        content = apply(content, one)
    return True


def drawn(
    dice: random.Random, count: int, whole: bool, width: float = 4.0, lost: float = 0.2, padded: float = 0.0
) -> list[Operation]:
    """What a correct register would tell: each takes effect at one moment between its begin and its end."""
    moments = []
    for number in range(count):
        moment = float(number * 2 + 1)
        begin, end = moment - dice.random() * width, moment + dice.random() * width
        kind = dice.choice([Kind.READ, Kind.READ, Kind.WRITE, Kind.WRITE, Kind.TRUNCATE, Kind.EXTEND, Kind.REMOVE])
        if whole and kind in (Kind.TRUNCATE, Kind.EXTEND):
            kind = Kind.WRITE
        offset = 0 if whole else dice.randrange(4)
        size = 2 if whole else dice.randrange(1, 4)
        payload = (b"%04d" % number)[-2:] if whole else bytes([97 + number % 26]) * size
        fate = dice.random()
        moments.append((kind, begin, end if kind is Kind.READ or fate > lost else None, offset, size, payload, fate))
    content: bytes | None = None
    history = []
    for kind, begin, end_or_none, offset, size, payload, fate in moments:
        if kind is Kind.READ:
            one = made(kind, begin, end_or_none, offset=offset, length=size)
            one = told(one, content, padded=dice.random() < padded)
        elif kind is Kind.WRITE:
            one = made(kind, begin, end_or_none, offset=offset, payload=payload)
        else:
            one = made(kind, begin, end_or_none, length=size)
        if end_or_none is not None or fate < lost / 2:
            content = apply(content, one)
        history.append(one)
    return history


def told(read: Operation, content: bytes | None, padded: bool) -> Operation:
    result = result_of(replace(read, padded=padded, result=bytes(read.length)), content)
    return replace(read, padded=padded, result=result)


#: Of all reads of a history, how many are padded: each case has its own short cuts.
PADDED = st.sampled_from([0.0, 0.5, 1.0])


@settings(max_examples=1500, deadline=None)
@given(st.integers(0, 1 << 40), st.booleans(), PADDED)
def test_random_histories_of_a_correct_register_are_good(seed: int, whole: bool, padded: float) -> None:
    dice = random.Random(seed)
    history = drawn(dice, dice.randrange(1, 40), whole, padded=padded)
    verdict = check(history)
    assert verdict.linearizable, verdict.explanation
    assert_witness(history, verdict.order)


@settings(max_examples=1500, deadline=None)
@given(st.integers(0, 1 << 40), st.booleans(), PADDED)
def test_the_verdict_on_spoilt_histories_is_that_of_brute_force(seed: int, whole: bool, padded: float) -> None:
    dice = random.Random(seed)
    width, lost = dice.choice([1.0, 4.0, 9.0]), dice.choice([0.0, 0.2, 0.6])
    history = drawn(dice, dice.randrange(2, 7), whole, width, lost, padded)
    reads = [i for i, one in enumerate(history) if one.kind is Kind.READ]
    for i in reads:
        if dice.random() < 0.6:
            source = dice.choice(history)
            content = apply(dice.choice([None, b"", source.payload]), dice.choice(history))
            history[i] = told(history[i], content, history[i].padded)
    verdict = check(history)
    assert verdict.linearizable == oracle(history), [str(one) for one in history]
    if verdict.linearizable:
        assert_witness(history, verdict.order)


@pytest.mark.parametrize("whole", [True, False])
def test_long_histories_take_few_steps(whole: bool) -> None:
    history = drawn(random.Random(5), 3000, whole, width=10.0, lost=0.02 if whole else 0.0)
    verdict = check(history, budget=200_000)
    assert verdict.linearizable, verdict.explanation


def test_a_long_history_with_one_stale_read_takes_few_steps() -> None:
    history = [w(2.0 * i, 2.0 * i + 1, b"%06d" % i) for i in range(2000)]
    history += [w(2.0 * i, None, b"?%05d" % i) for i in range(0, 2000, 50)]
    verdict = check([*history, r(4000, 4001, b"%06d" % 1998)], budget=20_000)
    assert not verdict.linearizable
    assert "first 2041 operations" in verdict.explanation and "read 8 at 0 -> b'001998'" in verdict.explanation


def test_the_budget_ends_in_no_verdict() -> None:
    with pytest.raises(Undecided):
        check([w(0, 9, bytes([97 + i]), i) for i in range(9)] + [r(10, 11, b"?")], budget=100)


def test_the_explanation_names_the_shortest_prefix() -> None:
    text = check([*BAD["stale read"], w(6, 7, b"c"), r(8, 9, b"a")]).explanation
    assert "first 3 operations" in text and "read 8 at 0 -> b'a'" in text and "b'b'" in text and "b'c'" not in text


def test_versions_of_good_histories() -> None:
    assert not check_versions([w(0, 1, b"ab", version=1), r(2, 3, b"b", 1, 4, version=1), w(2, 4, b"c", version=2)])
    assert not check_versions([w(0, 5, b"a", version=2), w(1, 4, b"b", version=1)])


VERSIONS = {
    "fell": [r(0, 1, b"a", version=2), r(2, 3, b"a", version=1)],
    "write made no new one": [w(0, 1, b"a", version=2), w(2, 3, b"b", version=2)],
    "made twice": [w(0, 5, b"a", version=2), w(1, 4, b"b", version=2)],
    "two contents": [r(0, 5, b"ab", version=2), r(1, 4, b"ac", version=2)],
    "two contents in part": [r(0, 5, b"abc", version=2), r(1, 4, b"x", 1, 1, version=2)],
    "two lengths": [r(0, 5, b"abc", version=2), r(1, 4, b"ab", version=2)],
    "two lengths, short one first": [r(0, 5, b"ab", version=2), r(1, 4, b"abc", version=2)],
    "not what was written": [w(0, 5, b"a", version=2), r(1, 4, b"b", version=2)],
    "there and not there": [r(0, 5, b"", version=2), r(1, 4, None, version=2)],
}


@pytest.mark.parametrize("name", VERSIONS)
def test_versions_of_bad_histories(name: str) -> None:
    assert check_versions(VERSIONS[name])


def test_a_history_with_violations_names_the_chunks() -> None:
    history = History()
    for chunk, operations in {"good": GOOD["write, read"], "bad": BAD["stale read, padded"]}.items():
        for one in operations:
            history.append(replace(one, chunk=chunk))
    (found,) = violations(history)
    assert found.startswith("I1: of chunk bad no order explains the first 3 operations")


def test_a_repeated_answer_replaces_an_unknown_outcome() -> None:
    history = History()
    history.append(w(0, 1, b"a"))
    place = history.append(w(2, None, b"b"))
    history.append(r(4, 5, b"a"))
    assert not violations(history)
    history.tell_again(place, w(2, 3, b"b"))
    assert len(history) == 3 and len(violations(history)) == 1
    history.tell_again(place, failed(w(2, 3, b"b")))
    assert not violations(history)


def test_impossible_results_are_no_operation() -> None:
    with pytest.raises(ValueError, match="padded"):
        made(Kind.READ, 0, 1, length=3, result=b"ab", padded=True)
    with pytest.raises(ValueError, match="padded"):
        made(Kind.READ, 0, 1, length=2, result=b"ab", padded=True, version=1)
    with pytest.raises(ValueError, match="before it began"):
        w(1, 0, b"")
    with pytest.raises(ValueError, match="has returned"):
        replace(w(0, None, b""), outcome=Outcome.OK)
