from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from threefs_fsck.link_counts import LinkCounts, ParentLinks

from threefs.ids import ROOT

numbers = st.integers(0, 2**64 - 1) | st.integers(0, 5)


@given(st.lists(st.lists(numbers)), st.lists(numbers))
def test_names_are_counted_as_a_counter_does(pages: list[list[int]], wanted: list[int]) -> None:
    counts = LinkCounts()
    for page in pages:
        counts.add(page)
    counts.close()
    plain = Counter(inode for page in pages for inode in page)
    assert counts.of(wanted).tolist() == [plain[inode] for inode in wanted]


@given(st.dictionaries(st.integers(2, 30), st.integers(1, 32)), st.randoms())
def test_one_directory_of_every_loop_is_found(up: dict[int, int], random: object) -> None:
    """Judged by walking up from each directory."""
    parents = ParentLinks()
    pairs = [(ROOT, ROOT), *up.items()]
    random.shuffle(pairs)  # type: ignore[attr-defined]
    half = len(pairs) // 2
    for part in (pairs[:half], pairs[half:]):
        parents.add([inode for inode, _ in part], [parent for _, parent in part])
    cycles = {frozenset(ring(up, inode)) for inode in up if on_loop(up, inode)}
    found = parents.cycles()
    assert len(found) == len(cycles)
    assert {frozenset(ring(up, inode)) for inode in found} == cycles


def on_loop(up: dict[int, int], inode: int) -> bool:
    at = up[inode]
    for _ in up:
        if at == inode:
            return True
        if at not in up:
            return False
        at = up[at]
    return False


def ring(up: dict[int, int], inode: int) -> list[int]:
    members, at = [inode], up[inode]
    while at != inode:
        members.append(at)
        at = up[at]
    return members


def test_nothing_was_added() -> None:
    counts = LinkCounts()
    counts.close()
    assert np.array_equal(counts.of([1, 2]), [0, 0])
    assert ParentLinks().cycles() == []
