"""What a power cut and a failed sync may take from a file of a simulated disk, and what they may not."""

import pytest

from tests.harness.seeded_random import SeededRandom
from tests.harness.simulated.content import SECTOR_BYTES, UNIT_BYTES, Content
from threefs.errors import NoSpace

SECTORS = 8
LENGTH = SECTORS * SECTOR_BYTES


def fresh(length: int = 4 * UNIT_BYTES) -> Content:
    content = Content(lambda: 1 << 30)
    content.allocate(0, length)
    content.sync(content.number)
    return content


def sectors(content: Content, offset: int = 0, count: int = SECTORS) -> list[int]:
    """The first byte of each sector; they are of one kind each."""
    data = content.bytes_at(offset, count * SECTOR_BYTES)
    pieces = [data[at : at + SECTOR_BYTES] for at in range(0, len(data), SECTOR_BYTES)]
    assert all(piece == piece[:1] * SECTOR_BYTES for piece in pieces), "a sector is torn"
    return [piece[0] for piece in pieces]


def outcomes(seeds: int = 200) -> range:
    return range(seeds)


def test_what_was_synced_survives_every_power_cut() -> None:
    for seed in outcomes(20):
        content = fresh()
        content.write(100, b"kept")
        content.sync(content.number)
        content.forget_unsynced(SeededRandom(seed))
        assert content.bytes_at(99, 6) == b"\0kept\0"


def test_of_what_was_not_synced_any_sectors_survive() -> None:
    found = set()
    for seed in outcomes():
        content = fresh()
        content.write(0, b"\1" * LENGTH)
        content.sync(content.number)
        content.write(0, b"\2" * LENGTH)
        content.forget_unsynced(SeededRandom(seed))
        found.add(tuple(sectors(content)))
    assert {sector for state in found for sector in state} == {1, 2}
    assert len(found) > 100, "each sector for itself"


def test_a_sector_written_twice_may_be_any_of_the_three() -> None:
    found = set()
    for seed in outcomes():
        content = fresh()
        for value in (b"\1", b"\2", b"\3"):
            content.write(0, value * SECTOR_BYTES)
            if value == b"\1":
                content.sync(content.number)
        content.forget_unsynced(SeededRandom(seed))
        found.add(sectors(content, 0, 1)[0])
    assert found == {1, 2, 3}


def test_a_sync_covers_what_was_written_before_it_began_only() -> None:
    found = set()
    for seed in outcomes():
        content = fresh()
        content.write(0, b"\1" * SECTOR_BYTES)
        number = content.number
        content.write(0, b"\2" * SECTOR_BYTES)
        content.sync(number)
        content.forget_unsynced(SeededRandom(seed))
        found.add(sectors(content, 0, 1)[0])
    assert found == {1, 2}


def test_bytes_beside_a_write_in_its_sector_are_safe() -> None:
    for seed in outcomes(50):
        content = fresh()
        content.write(0, b"old " * 128)
        content.sync(content.number)
        content.write(200, b"new!")
        content.forget_unsynced(SeededRandom(seed))
        assert content.bytes_at(0, 200) == b"old " * 50
        assert content.bytes_at(200, 4) in (b"old ", b"new!")
        assert content.bytes_at(204, 308) == b"old " * 77


def test_a_growth_that_was_not_synced_is_there_or_not() -> None:
    sizes = set()
    for seed in outcomes(60):
        content = fresh(UNIT_BYTES)
        content.allocate(UNIT_BYTES, UNIT_BYTES)
        content.write(2 * UNIT_BYTES, b"x" * 100)
        content.forget_unsynced(SeededRandom(seed))
        sizes.add(content.size)
        assert content.allocated() == -(-content.size // UNIT_BYTES) * UNIT_BYTES
        content.allocate(0, 3 * UNIT_BYTES)
        assert content.bytes_at(UNIT_BYTES, UNIT_BYTES) == bytes(UNIT_BYTES)
        assert content.bytes_at(2 * UNIT_BYTES + 100, 1000) == bytes(1000)
    assert sizes == {UNIT_BYTES, 2 * UNIT_BYTES, 2 * UNIT_BYTES + 100}


def test_a_growth_that_was_synced_stays() -> None:
    for seed in outcomes(20):
        content = fresh(UNIT_BYTES)
        content.allocate(UNIT_BYTES, UNIT_BYTES)
        content.sync(content.number)
        content.forget_unsynced(SeededRandom(seed))
        assert content.size == 2 * UNIT_BYTES


def test_a_failed_sync_loses_some_sectors_for_good() -> None:
    found = set()
    for seed in outcomes():
        content = fresh()
        content.write(0, b"\1" * LENGTH)
        content.sync(content.number)
        content.write(0, b"\2" * LENGTH)
        content.fail_sync(content.number, SeededRandom(seed))
        state = sectors(content)
        found.add(tuple(state))
        content.sync(content.number)  # it succeeds, and does not bring anything back
        content.forget_unsynced(SeededRandom(seed + 1))
        assert sectors(content) == state, "the pages were clean"
    assert len(found) > 100


def test_a_failed_sync_leaves_alone_what_was_written_after_it_began() -> None:
    for seed in outcomes(50):
        content = fresh()
        content.write(0, b"\1" * SECTOR_BYTES * 2)
        number = content.number
        content.write(0, b"\2" * SECTOR_BYTES)
        content.fail_sync(number, SeededRandom(seed))
        assert sectors(content, 0, 1) == [2]
        content.sync(content.number)
        content.forget_unsynced(SeededRandom(seed))
        assert sectors(content, 0, 1) == [2]


def test_what_was_released_does_not_come_back() -> None:
    for seed in outcomes(50):
        content = fresh()
        content.write(UNIT_BYTES - 1024, b"\7" * (UNIT_BYTES + 2048))
        content.release(UNIT_BYTES, UNIT_BYTES)
        content.forget_unsynced(SeededRandom(seed))
        assert content.bytes_at(UNIT_BYTES, UNIT_BYTES) == bytes(UNIT_BYTES)
        assert set(sectors(content, UNIT_BYTES - 1024, 2) + sectors(content, 2 * UNIT_BYTES, 2)) <= {0, 7}
    assert content.allocated() == 3 * UNIT_BYTES


def test_room_is_counted_and_runs_out() -> None:
    content = Content(lambda: 2 * UNIT_BYTES - content.allocated())
    content.allocate(0, UNIT_BYTES)
    assert content.unreserved == 0
    content.write(UNIT_BYTES, b"x")
    assert (content.allocated(), content.unreserved) == (2 * UNIT_BYTES, 1)
    with pytest.raises(NoSpace):
        content.write(2 * UNIT_BYTES, b"x")
    with pytest.raises(NoSpace):
        content.allocate(0, 3 * UNIT_BYTES)
    assert content.size == UNIT_BYTES + 1
    content.release(0, UNIT_BYTES)
    content.write(2 * UNIT_BYTES, b"x")
    assert content.allocated() == 2 * UNIT_BYTES


def test_only_written_pages_are_kept() -> None:
    content = Content(lambda: 1 << 40)
    content.allocate(0, 1 << 30)
    content.write(1 << 29, b"x")
    assert len(content._pages) == 1
    assert content.bytes_at((1 << 29) - 1, 3) == b"\0x\0"


def test_rot_flips_one_bit() -> None:
    content = fresh()
    content.write(1000, b"\x0f")
    content.flip(1000 * 8 + 4)
    assert content.bytes_at(999, 3) == b"\0\x1f\0"
