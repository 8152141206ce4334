"""Each write is applied at most once, whatever is late, repeated or forgotten."""

import random
from dataclasses import dataclass, field

import pytest
from threefs_storage.engine import exactly_once
from threefs_storage.engine.exactly_once import (
    KEPT_ENTRIES,
    MAX_ENTRIES,
    NOTHING_FORGOTTEN,
    WRITE_LIFETIME_MINUTES,
    Forgotten,
    OnceEntry,
    add_entry,
    may_be_forgotten,
)


def entry(number: int, stamp: int = 0, version: int = 0) -> OnceEntry:
    return OnceEntry(number.to_bytes(16, "big"), 1, 1, version or number, 0, 0, stamp)


def remembered(entries: list[OnceEntry]) -> tuple[tuple[OnceEntry, ...], Forgotten]:
    kept: tuple[tuple[OnceEntry, ...], Forgotten] = ((), NOTHING_FORGOTTEN)
    for one in entries:
        kept = add_entry(*kept, one)
    return kept


def test_a_few_are_kept_whatever_their_age() -> None:
    entries, forgotten = remembered([entry(n, stamp=n * 10_000) for n in range(1, 2 * KEPT_ENTRIES)])
    assert [e.version for e in entries] == list(range(KEPT_ENTRIES, 2 * KEPT_ENTRIES))
    assert forgotten == NOTHING_FORGOTTEN, "they have ended in their time"


def test_young_ones_are_kept_beyond_that() -> None:
    entries, forgotten = remembered([entry(n, stamp=n % WRITE_LIFETIME_MINUTES) for n in range(1, MAX_ENTRIES + 1)])
    assert len(entries) == MAX_ENTRIES and not forgotten.version


def test_of_too_many_in_too_short_a_time_the_oldest_are_forgotten_and_that_is_known() -> None:
    entries, forgotten = remembered([entry(n, stamp=7) for n in range(1, MAX_ENTRIES + 4)])
    assert len(entries) == MAX_ENTRIES and entries[0].version == 4
    assert forgotten == Forgotten(3, 7)
    assert may_be_forgotten(forgotten, 2, 7) and may_be_forgotten(forgotten, 0, 7 + WRITE_LIFETIME_MINUTES)
    assert not may_be_forgotten(forgotten, 3, 7), "a write made when version 3 was known is none of them"
    assert not may_be_forgotten(forgotten, 0, 8 + WRITE_LIFETIME_MINUTES), "nothing of that time is on its way any more"


def test_one_channel_has_one_entry() -> None:
    entries, _ = remembered([entry(1), entry(2), OnceEntry((1).to_bytes(16, "big"), 1, 2, 3, 0, 0)])
    assert [(e.client[-1], e.seq) for e in entries] == [(2, 1), (1, 2)]


@dataclass
class _Chunk:
    """The decisions of the head, on a chunk of which only few results are kept."""

    version: int = 0
    entries: tuple[OnceEntry, ...] = ()
    forgotten: Forgotten = NOTHING_FORGOTTEN
    applied: dict[tuple[int, int], int] = field(default_factory=dict)

    def write(self, client: int, first: int, seq: int, write: int, known: int, again: bool, now: int) -> str:
        found = next((e for e in self.entries if e.client == client.to_bytes(16, "big")), None)
        if found is not None and found.seq >= (first or seq):
            return "stale" if found.seq > seq else "done"
        if found is None and may_be_forgotten(self.forgotten, known, now):
            return "unknown" if again or first else "anew"
        self.version += 1
        self.applied[client, write] = self.applied.get((client, write), 0) + 1
        result = OnceEntry(client.to_bytes(16, "big"), 1, seq, self.version, 0, 0, now)
        self.entries, self.forgotten = add_entry(self.entries, self.forgotten, result)
        return "done"


@dataclass
class _Client:
    number: int
    seq: int = 0
    first: int = 0
    begun: int = 0
    write: int = 0
    known: int = 0
    unsure: bool = False
    writing: bool = False


def _run(dice: random.Random, lifetime: int) -> _Chunk:
    """Clients that write, lose answers, give up; attempts that arrive late, twice, within their lifetime."""
    chunk, clients, now = _Chunk(), [_Client(n) for n in range(1, 9)], 0
    late: list[tuple[int, tuple[int, int, int, int, int, bool]]] = []  # until when it may arrive
    for _ in range(400):
        now += dice.choice((0, 0, 0, 1, lifetime // 3))
        late = [one for one in late if one[0] >= now]
        if late and dice.random() < 0.3:
            _, attempt = late[dice.randrange(len(late))]
            chunk.write(*attempt, now)
            continue
        client = dice.choice(clients)
        if not client.writing or now - client.begun > lifetime:
            client.seq += 1
            client.write += 1
            client.writing, client.unsure, client.first, client.begun = True, False, 0, now
        attempt = (client.number, client.first, client.seq, client.write, client.known, client.unsure)
        late.append((client.begun + lifetime, attempt))  # a copy of it may be anywhere
        if dice.random() < 0.3:
            client.unsure = True  # it did not arrive, yet
            continue
        outcome = chunk.write(*attempt, now)
        if dice.random() < 0.3:
            client.unsure = True  # its answer did not arrive
        elif outcome == "anew":
            client.first = client.first or client.seq
            client.seq += 1
            client.known = chunk.version
        else:
            client.writing = False
            client.known = chunk.version if dice.random() < 0.5 else 0
    return chunk


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exactly_once, "KEPT_ENTRIES", 2)
    monkeypatch.setattr(exactly_once, "MAX_ENTRIES", 4)


@pytest.mark.usefixtures("few")
def test_no_write_is_applied_twice() -> None:
    for seed in range(300):
        chunk = _run(random.Random(seed), WRITE_LIFETIME_MINUTES)
        assert max(chunk.applied.values()) == 1, seed
        assert chunk.version > 20, "and most are"


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("bug", ["nothing is forgotten", "any version was known", "the first number is not named"])
def test_without_a_rule_some_are(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if bug == "the first number is not named":
        write = _Chunk.write
        monkeypatch.setattr(_Chunk, "write", lambda chunk, client, first, *rest: write(chunk, client, 0, *rest))
    elif bug == "nothing is forgotten":
        monkeypatch.setitem(globals(), "may_be_forgotten", lambda *_: False)
    else:
        monkeypatch.setitem(
            globals(), "may_be_forgotten", lambda f, known, now: exactly_once.may_be_forgotten(f, known + 3, now)
        )
    assert any(max(_run(random.Random(seed), WRITE_LIFETIME_MINUTES).applied.values()) > 1 for seed in range(300))
