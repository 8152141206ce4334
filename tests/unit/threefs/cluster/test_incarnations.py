from contextlib import suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.harness.small_disk import small_disk
from threefs.cluster.incarnations import next_incarnation

MS = 1_000_000


def test_it_is_the_time_of_the_start(tmp_path: Path) -> None:
    assert next_incarnation(tmp_path / "new" / "incarnation", 1_700_000_000_123 * MS + 5) == 1_700_000_000_123


def test_it_rises_even_if_the_wall_clock_does_not(tmp_path: Path) -> None:
    file = tmp_path / "incarnation"
    assert [next_incarnation(file, now * MS) for now in (1000, 1000, 7, 2000)] == [1000, 1001, 1002, 2000]
    assert next_incarnation(file, 0, above=5000) == 5001
    assert next_incarnation(file, 0) == 5002, "it was kept"


def test_a_start_on_a_full_disk_has_its_number(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "64k") as disk:
        file = disk / "incarnation"
        assert next_incarnation(file, 1000 * MS) == 1000
        with suppress(OSError):
            (disk / "filler").write_bytes(b"x" * 65_536)
        assert next_incarnation(file, 1000 * MS) == 1001
        assert next_incarnation(file, 0) == 1002 and file.read_bytes() == b"1002\n"
        assert not (disk / "incarnation.new").exists()
        with pytest.raises(OSError, match="No space left"):
            next_incarnation(disk / "new", 1000 * MS)


@pytest.mark.parametrize("content", [b"", b"\xff\xff", b"12x"])
def test_a_file_that_holds_no_number_leaves_the_wall_clock(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "incarnation"
    file.write_bytes(content)
    with capture_logs() as logs:
        assert next_incarnation(file, 1000 * MS) == 1000
    assert [entry["file"] for entry in logs] == [str(file)]
    assert next_incarnation(file, 0) == 1001


def test_nothing_half_written_is_left(tmp_path: Path) -> None:
    next_incarnation(tmp_path / "incarnation", 1000 * MS)
    assert [path.name for path in tmp_path.iterdir()] == ["incarnation"]
