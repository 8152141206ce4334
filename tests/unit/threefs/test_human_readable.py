import pytest

from threefs import human_readable


@pytest.mark.parametrize(
    ("length", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 40, "1.0 TiB"), (1 << 74, "16384.0 EiB")],
)
def test_sizes_for_people(length: int, shown: str) -> None:
    assert human_readable.size(length) == shown


def test_counts_for_people() -> None:
    assert human_readable.count_of(1, "file", "files") == "1 file"
    assert human_readable.count_of(0, "file", "files") == "0 files"


@pytest.mark.parametrize(
    ("text", "length"),
    [("0", 0), ("8388608", 8 << 20), ("8M", 8 << 20), ("8 MiB", 8 << 20), ("8mb", 8 << 20), ("1E", 1 << 60), ("2b", 2)],
)
def test_sizes_that_people_write(text: str, length: int) -> None:
    assert human_readable.parse_size(text) == length


@pytest.mark.parametrize("text", ["", "M", "1.5M", "-1", "8 X", "8MiB/s", "1 2", "1" * 5000])
def test_what_is_no_size(text: str) -> None:
    assert human_readable.parse_size(text) is None


@pytest.mark.parametrize(
    ("text", "seconds"), [("250ms", 0.25), ("10s", 10), ("1.5m", 90), ("12h", 43_200), ("7d", 604_800), ("1w", 604_800)]
)
def test_times_that_people_write(text: str, seconds: float) -> None:
    assert human_readable.parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "s", "1y", "-1s", "1.s"])
def test_what_is_no_time(text: str) -> None:
    assert human_readable.parse_duration(text) is None


def test_exact_values_hide_nothing() -> None:
    assert [human_readable.exact_size(n) for n in (0, 1000, 1024, 8 << 20, (8 << 20) + 1)] == [
        "0 B",
        "1000 B",
        "1 KiB",
        "8 MiB",
        "8388609 B",
    ]
    assert [human_readable.exact_duration(n) for n in (0, 0.25, 90, 3600, 604_800)] == [
        "0s",
        "0.25s",
        "90s",
        "1h",
        "7d",
    ]
