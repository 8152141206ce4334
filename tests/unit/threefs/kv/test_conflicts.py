import pytest

from threefs.errors import TooOld
from threefs.kv.conflicts import History, Reads


def test_a_point_conflicts_with_later_writers_only() -> None:
    history = History(10.0)
    history.record([b"a"], 0.0)
    begin = history.version
    history.record([b"b"], 0.0)
    assert history.newest(Reads(points={b"a"}), begin) == begin
    assert history.newest(Reads(points={b"b"}), begin) == 2
    assert history.newest(Reads(points={b"b"}), 2) == 2


@pytest.mark.parametrize(
    ("begin", "end", "found"), [(b"a", b"b", 0), (b"b", b"c", 1), (b"b", b"b\0", 1), (b"bb", b"z", 2), (b"d", b"z", 0)]
)
def test_a_range_includes_its_begin_and_excludes_its_end(begin: bytes, end: bytes, found: int) -> None:
    history = History(10.0)
    history.record([b"b"], 0.0)
    history.record([b"cc", b"c"], 0.0)
    history.record([b"zz"], 0.0)
    assert history.newest(Reads(ranges=[(begin, end)]), 0) == found


def test_the_newest_of_several_is_found() -> None:
    history = History(10.0)
    for key in (b"a", b"b", b"a", b"c"):
        history.record([key], 0.0)
    assert history.newest(Reads(points={b"a", b"b"}, ranges=[(b"b", b"c")]), 0) == 3


def test_what_has_left_the_window_cannot_be_judged() -> None:
    history = History(10.0)
    for number in range(1024):
        history.record([b"%d" % (number % 300)], float(number))
    read_nothing_recent = Reads(points={b"absent"})
    with pytest.raises(TooOld):
        history.newest(read_nothing_recent, 900)
    assert history.newest(read_nothing_recent, 1020) == 1020
    assert history.newest(Reads(points={b"%d" % (1023 % 300)}), 1020) == 1024
    assert history.newest(Reads(ranges=[(b"", b"z")]), 1020) == 1024


def test_memory_of_the_history_is_bounded() -> None:
    history = History(10.0)
    for number in range(5000):
        history.record([b"%d" % number], float(number))
    assert len(history._latest) == len(history._commits) == len(history._times) < 300


def test_size_counts_every_key() -> None:
    assert Reads({b"a", b"bb"}, [(b"c", b"ddd")]).size_bytes() == 7
