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
