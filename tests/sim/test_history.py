"""The checker itself: histories with known verdicts, and a slow one that tries every order."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim.history import History, Operation, Undecided, apply, linearizable, matches

OPEN = math.inf


def write(begin: float, end: float, payload: bytes, offset: int = 0, client: str = "a") -> Operation:
    return Operation(client, "write", offset, len(payload), payload, b"", begin, end)


def read(begin: float, end: float, seen: bytes, offset: int = 0, client: str = "b") -> Operation:
    return Operation(client, "read", offset, len(seen), b"", seen, begin, end)


def change(kind: str, begin: float, end: float, length: int = 0) -> Operation:
    return Operation("a", kind, 0, length, b"", b"", begin, end)


GOOD: dict[str, list[Operation]] = {
    "nothing happened": [],
    "a chunk that does not exist reads as zeros": [read(0, 1, b"\0\0")],
    "a read after a write": [write(0, 1, b"xy"), read(2, 3, b"xy")],
    "a read beside a write sees the old": [write(0, 9, b"xy"), read(2, 3, b"\0\0")],
    "a read beside a write sees the new": [write(0, 9, b"xy"), read(2, 3, b"xy")],
    "old, then new, beside one write": [write(0, 9, b"x"), read(1, 2, b"\0"), read(3, 4, b"x")],
    "two writes beside each other, either way": [write(0, 5, b"x"), write(1, 6, b"y"), read(7, 8, b"x")],
    "an unknown write that never was": [write(0, OPEN, b"x"), read(1, 2, b"\0"), read(3, 4, b"\0")],
    "an unknown write that shows late": [write(0, OPEN, b"x"), read(1, 2, b"\0"), read(30, 40, b"x")],
    "an unknown write after an acknowledged one": [write(0, OPEN, b"x"), write(1, 2, b"y"), read(3, 4, b"x")],
    "parts of one chunk": [write(0, 1, b"aa"), write(2, 3, b"b", 1), read(4, 5, b"ab")],
    "a gap reads as zeros": [write(0, 1, b"z", 2), read(2, 3, b"\0\0z")],
    "a cut": [write(0, 1, b"abc"), change("truncate", 2, 3, 1), read(4, 5, b"a\0\0")],
    "a cut and an extension leave zeros": [
        write(0, 1, b"abc"),
        change("truncate", 2, 3, 1),
        change("extend", 4, 5, 3),
        read(6, 7, b"a\0\0"),
    ],
    "an extension takes nothing away": [write(0, 1, b"abc"), change("extend", 2, 3, 2), read(4, 5, b"abc")],
    "a removal": [write(0, 1, b"abc"), change("remove", 2, 3), read(4, 5, b"\0\0\0")],
    "a removal beside a write": [write(0, 9, b"abc"), change("remove", 0, 9), read(10, 11, b"abc")],
    "three beside each other, seen in one order": [
        write(0, 9, b"x"),
        write(0, 9, b"y"),
        write(0, 9, b"z"),
        read(1, 2, b"y"),
        read(3, 4, b"z"),
        read(5, 6, b"x"),
    ],
}

BAD: dict[str, list[Operation]] = {
    "a stale read": [write(0, 1, b"x"), write(2, 3, b"y"), read(4, 5, b"x")],
    "a lost write": [write(0, 1, b"x"), read(2, 3, b"\0")],
    "new, then old, by two readers": [
        write(0, 9, b"x"),
        read(1, 2, b"x"),
        Operation("c", "read", 0, 1, b"", b"\0", 3, 4),
    ],
    "from the future": [read(0, 1, b"x"), write(2, 3, b"x")],
    "never written": [write(0, 1, b"x"), read(2, 3, b"q")],
    "an unknown write that shows and is gone": [write(0, OPEN, b"x"), read(1, 2, b"x"), read(3, 4, b"\0")],
    "an unknown write before it was sent": [read(0, 1, b"x"), write(2, OPEN, b"x")],
    "a write applied twice": [
        write(0, 1, b"x"),
        write(2, 3, b"y"),
        read(4, 5, b"y"),
        read(6, 7, b"x"),
    ],
    "an unknown write applied twice": [
        write(0, OPEN, b"x"),
        read(1, 2, b"x"),
        write(3, 4, b"y"),
        read(5, 6, b"y"),
        read(7, 8, b"x"),
    ],
    "two writes mixed in one": [write(0, 9, b"xx"), write(0, 9, b"yy"), read(10, 11, b"xy")],
    "half a write": [write(0, 1, b"xx"), read(2, 3, b"x\0")],
    "seen in two orders": [
        write(0, 9, b"x"),
        write(0, 9, b"y"),
        read(1, 2, b"x"),
        read(3, 4, b"y"),
        read(5, 6, b"x"),
    ],
    "a cut that brings bytes back": [
        write(0, 1, b"abc"),
        change("truncate", 2, 3, 1),
        change("extend", 4, 5, 3),
        read(6, 7, b"abc"),
    ],
    "a removal that was not": [write(0, 1, b"abc"), change("remove", 2, 3), read(4, 5, b"abc")],
    "a gap that is not zeros": [write(0, 1, b"z", 2), read(2, 3, b"q\0z")],
    "old after a later write was read": [
        write(0, 1, b"x"),
        write(2, 9, b"y"),
        read(3, 4, b"y"),
        read(5, 6, b"x"),
    ],
}


@pytest.mark.parametrize("name", GOOD)
def test_good_histories(name: str) -> None:
    assert linearizable(GOOD[name])


@pytest.mark.parametrize("name", BAD)
def test_bad_histories(name: str) -> None:
    assert not linearizable(BAD[name])
    history = History({7: BAD[name]})
    (found,) = history.violations()
    assert found.startswith("I1: no order explains what was seen of chunk 7")


def by_all_orders(operations: list[Operation]) -> bool:
    """The definition itself: some of the open changes, and all else, in an order that keeps to time."""
    ended = [o for o in operations if o.returned != OPEN]
    unknown = [o for o in operations if o.returned == OPEN]
    for count in range(len(unknown) + 1):
        for chosen in itertools.combinations(unknown, count):
            for order in itertools.permutations([*ended, *chosen]):
                if _explains(order):
                    return True
    return False


def _explains(order: tuple[Operation, ...]) -> bool:
    content = b""
    for place, operation in enumerate(order):
        if any(later.returned < operation.invoked for later in order[place + 1 :]):
            return False
        if operation.kind == "read":
            if not matches(content, operation):
                return False
        else:
            content = apply(content, operation)
    return True


@st.composite
def histories(draw: st.DrawFn) -> list[Operation]:
    found = []
    for number in range(draw(st.integers(1, 6))):
        begin = draw(st.integers(0, 10))
        end = begin + draw(st.integers(0, 6)) + 0.5
        kind = draw(st.sampled_from(["write", "write", "read", "read", "truncate", "remove"]))
        if kind == "write":
            payload = bytes([97 + number]) * draw(st.integers(1, 2))
            unknown = draw(st.booleans()) and draw(st.booleans())
            found.append(write(begin, OPEN if unknown else end, payload, draw(st.integers(0, 1))))
        elif kind == "read":
            found.append(read(begin, end, bytes(draw(st.lists(st.sampled_from(b"\0abcdef"), min_size=1, max_size=2)))))
        else:
            found.append(change(kind, begin, end, draw(st.integers(0, 2))))
    return found


@settings(max_examples=400)
@given(histories())
def test_it_agrees_with_trying_every_order(operations: list[Operation]) -> None:
    assert linearizable(operations) == by_all_orders(operations)


@settings(max_examples=200)
@given(histories(), st.data())
def test_what_a_register_really_did_is_good(operations: list[Operation], data: st.DataObject) -> None:
    content = b""
    for operation in sorted(operations, key=lambda o: o.invoked):
        if operation.kind != "read":
            content = apply(content, operation)
        else:
            operation.seen = content[operation.offset : operation.offset + operation.length].ljust(
                operation.length, b"\0"
            )
    assert linearizable(operations)


def test_it_gives_up_rather_than_guess() -> None:
    many = [write(0, 100, bytes([65 + n])) for n in range(14)] + [read(101, 102, b"?")]
    with pytest.raises(Undecided):
        linearizable(many, most_states=500)
