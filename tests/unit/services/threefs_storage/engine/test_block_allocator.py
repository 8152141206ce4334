import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_storage.engine.block_allocator import BlockAllocator


def test_the_lowest_free_block_is_taken() -> None:
    allocator = BlockAllocator()
    assert allocator.take(0) is None
    allocator.grow(3)
    assert [allocator.take(0) for _ in range(4)] == [0, 1, 2, None]
    allocator.free(1, 0)
    allocator.free(0, 0)
    assert [allocator.take(0) for _ in range(3)] == [0, 1, None]
    assert (allocator.used, allocator.capacity) == (3, 3)


def test_a_freed_block_waits_until_its_record_is_durable() -> None:
    allocator = BlockAllocator()
    allocator.grow(1)
    assert allocator.take(0) == 0
    allocator.free(0, 7)
    assert allocator.freed == 1
    assert allocator.take(6) is None
    assert allocator.take(7) == 0
    assert not allocator.freed


def test_a_pinned_block_is_not_reused_before_the_last_pin_is_gone() -> None:
    allocator = BlockAllocator()
    allocator.grow(2)
    assert [allocator.take(0), allocator.take(0)] == [0, 1]
    allocator.pin(0)
    allocator.pin(0)
    allocator.free(0, 1)
    allocator.free(1, 2)
    assert allocator.take(2) == 1, "a pinned block does not hold up others"
    allocator.unpin(0)
    assert allocator.take(2) is None
    allocator.unpin(0)
    assert allocator.take(2) == 0


def test_claims_make_room() -> None:
    allocator = BlockAllocator()
    allocator.claim(2)
    assert [allocator.take(0) for _ in range(3)] == [0, 1, None]
    with pytest.raises(AssertionError, match="two records"):
        allocator.claim(2)


def test_freeing_twice_is_a_bug() -> None:
    allocator = BlockAllocator()
    allocator.grow(1)
    allocator.take(0)
    allocator.free(0, 0)
    with pytest.raises(AssertionError, match="twice"):
        allocator.free(0, 0)


@given(st.lists(st.tuples(st.sampled_from(["take", "free", "pin", "unpin", "flush"]), st.integers(0, 5))))
def test_no_block_is_ever_given_to_two(plan: list[tuple[str, int]]) -> None:
    allocator = BlockAllocator()
    allocator.grow(6)
    used: set[int] = set()
    freed: dict[int, int] = {}
    pins = [0] * 6
    written = durable = 0
    for action, slot in plan:
        if action == "take":
            got = allocator.take(durable)
            reusable = {s for s, number in freed.items() if number <= durable and not pins[s]}
            free = (set(range(6)) - used - set(freed)) | reusable
            assert got == (min(free) if free else None)
            for s in reusable:
                del freed[s]
            if got is not None:
                used.add(got)
        elif action == "free" and slot in used:
            written += 1
            used.remove(slot)
            freed[slot] = written
            allocator.free(slot, written)
        elif action == "pin":
            pins[slot] += 1
            allocator.pin(slot)
        elif action == "unpin" and pins[slot]:
            pins[slot] -= 1
            allocator.unpin(slot)
        elif action == "flush":
            durable = written
        assert allocator.used == len(used) + len(freed)


def test_free_blocks_that_nobody_needs_become_holes_the_highest_first() -> None:
    allocator = BlockAllocator()
    allocator.grow(20)
    for _ in range(20):
        allocator.take(0)
    for slot in range(4, 20):
        allocator.free(slot, 1)
    assert allocator.punch_unneeded(0, 2) == [], "they may be wanted back after a crash"
    assert allocator.punch_unneeded(1, 2) == [], "they were given up a moment ago"
    for _ in range(3):
        allocator.free(allocator.take(1) or 0, 2)  # 3 of 16 are in use at a time, at most
    assert allocator.punch_unneeded(2, 2) == [(12, 8)], "3 that were needed stay, and 3 for the next time, and 2"
    assert (allocator.free_slots, allocator.holes) == (8, 8)
    assert allocator.punch_unneeded(2, 2) == [(6, 6)]
    assert allocator.punch_unneeded(2, 2) == []
    assert [allocator.take(2) for _ in range(3)] == [4, 5, None]


def test_holes_are_not_taken_until_they_are_filled() -> None:
    allocator = BlockAllocator()
    allocator.grow(8)
    taken = [allocator.take(0) for _ in range(8)]
    for slot in (1, 2, 3, 6):
        allocator.free(slot, 1)
    assert allocator.punch_holes(0) == []
    assert allocator.punch_holes(1) == [(1, 3), (6, 1)]
    assert taken == list(range(8))
    assert (allocator.used, allocator.holes, allocator.take(1)) == (4, 4, None)
    assert allocator.first_hole(2) == (1, 2)
    allocator.fill(1, 2)
    assert [allocator.take(1) for _ in range(3)] == [1, 2, None]
    assert allocator.first_hole(9) == (3, 1)
    assert allocator.holes == 2
    assert allocator.all_holes() == [(3, 1), (6, 1)]


def test_a_file_with_holes_is_opened_as_one_hole() -> None:
    allocator = BlockAllocator()
    allocator.grow(4, holes=True)
    allocator.claim(1)
    assert allocator.take(0) is None
    assert allocator.first_hole(9) == (0, 1)
    allocator.fill(0, 1)
    assert allocator.first_hole(9) == (2, 2)


def test_a_freed_block_may_be_kept_in_use() -> None:
    allocator = BlockAllocator()
    allocator.grow(3)
    assert [allocator.take(0) for _ in range(3)] == [0, 1, 2] and not allocator.withhold(1)
    allocator.free(0, 1)
    allocator.free(1, 1)
    assert allocator.withhold(1) and allocator.withhold(1) and allocator.freed == 1
    assert [allocator.take(1), allocator.take(1)] == [0, None] and allocator.used == 3
