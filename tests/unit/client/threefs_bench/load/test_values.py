import pytest
from threefs_bench.load import values
from threefs_bench.load.values import Distribution, Pair, Share

from threefs.errors import InvalidArgument


@pytest.mark.parametrize(
    ("text", "size"), [("4096", 4096), ("4k", 4096), ("4KB", 4096), ("1m", 1 << 20), ("2G", 2 << 30), ("1t", 1 << 40)]
)
def test_sizes_are_powers_of_1024(text: str, size: int) -> None:
    assert values.size(text) == size


@pytest.mark.parametrize("text", ["", "4x", "-1", "4 k", "k", "1.5m", "50%"])
def test_what_is_no_size_says_so(text: str) -> None:
    with pytest.raises(InvalidArgument, match="is not a size"):
        values.size(text)


@pytest.mark.parametrize("text", ["8192p", "9" * 5000, "9" * 19 + "p"])
def test_a_size_beyond_that_of_any_file_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="no file can be so large"):
        values.size(text)
    assert values.size("8191p") == 8191 << 50
    assert values.size("0" * 30 + "1k") == 1024


def test_a_size_that_fio_reads_otherwise_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="write 4k"):
        values.size("4KiB")


@pytest.mark.parametrize(
    ("text", "seconds"), [("30", 30.0), ("500ms", 0.5), ("5m", 300.0), ("1h", 3600.0), ("2s", 2.0)]
)
def test_times_are_seconds(text: str, seconds: float) -> None:
    assert values.seconds(text) == seconds
    with pytest.raises(InvalidArgument, match="is not a time"):
        values.seconds("soon")


@pytest.mark.parametrize("text", ["367d", "9" * 400])
def test_a_time_that_never_ends_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="366 days"):
        values.seconds(text)


def test_one_value_is_for_both_directions() -> None:
    parse = values.pair(values.size, 512)
    assert parse("4k") == Pair(4096, 4096)
    assert parse("4k,64k") == Pair(4096, 65536)
    with pytest.raises(InvalidArgument, match="3 values"):
        parse("1,2,3")


def test_a_value_for_one_direction_leaves_the_other_alone() -> None:
    parse = values.pair(values.size, 512)
    assert parse(",4k") == Pair(512, 4096) and parse("4k,") == Pair(4096, 512)
    for text in ("", ","):
        with pytest.raises(InvalidArgument, match="a value is missing"):
            parse(text)


def test_shares_without_a_percentage_take_the_rest() -> None:
    assert values.shares("4k/60:64k/40") == (Share("4k", 60), Share("64k", 40))
    assert values.shares("4k/50:8k:64k") == (Share("4k", 50), Share("8k", 25), Share("64k", 25))
    assert values.shares("create") == (Share("create", 100),)


@pytest.mark.parametrize("text", ["4k/60:64k/30", "4k/101", "4k/60:8k/60:1m"])
def test_shares_add_up_to_100(text: str) -> None:
    with pytest.raises(InvalidArgument, match="percentage"):
        values.shares(text)


def test_splits_of_reads_and_of_writes() -> None:
    reads, writes = values.splits("4k/100,64k/50:1m/50")
    assert reads == (Share("4k", 100),) and writes == (Share("64k", 50), Share("1m", 50))
    with pytest.raises(InvalidArgument, match="is not a size"):
        values.splits("big/100")


def test_distributions() -> None:
    assert values.distribution("random") == values.distribution("uniform") == Distribution()
    assert values.distribution("zipf") == Distribution(values.ZIPF_THETA)
    assert values.distribution("zipf:0.8") == Distribution(0.8)
    for bad in ("pareto", "zipf:0", "zipf:x", "zipf:99", "random:1"):
        with pytest.raises(InvalidArgument):
            values.distribution(bad)


def test_flags_numbers_and_words() -> None:
    assert values.flag("1") and not values.flag("0")
    with pytest.raises(InvalidArgument, match="neither 1"):
        values.flag("maybe")
    with pytest.raises(InvalidArgument, match="not from 1 to 4"):
        values.number(1, 4)("5")
    for text in ("two", "", "1_0", "9" * 5000, "4ki"):
        with pytest.raises(InvalidArgument, match="whole number"):
            values.number(1, 4)(text)
    assert values.number(1, 4096)("2k") == 2048, "as in fio"
    with pytest.raises(InvalidArgument, match="none of a, b"):
        values.choice("a", "b")("c")
    with pytest.raises(InvalidArgument, match="missing"):
        values.text("")


def test_sizes_for_people() -> None:
    assert [values.shown_size(size) for size in (512, 1536, 3 << 20, 5 << 40)] == ["512B", "1.5KiB", "3.0MiB", "5.0TiB"]
