import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.harness.seeded_random import SeededRandom
from tests.harness.small_disk import small_disk
from threefs.cluster.incarnations import next_incarnation

MS = 1_000_000


def draw(file: Path, now_ms: int, above: int = 0, seed: int = 1) -> int:
    return next_incarnation(file, now_ms * MS + 5, SeededRandom(seed), above)


def test_it_is_the_time_of_the_start(tmp_path: Path) -> None:
    assert draw(tmp_path / "new" / "incarnation", 1_700_000_000_123) == 1_700_000_000_123


def test_it_rises_even_if_the_wall_clock_does_not(tmp_path: Path) -> None:
    file = tmp_path / "incarnation"
    drawn = [draw(file, now) for now in (1000, 1000, 7, 1 << 40)]
    assert drawn == sorted(set(drawn)) and (drawn[0], drawn[3]) == (1000, 1 << 40)
    above = draw(file, 0, above=1 << 41)
    assert 1 << 41 < above < draw(file, 0), "it was kept"


def test_two_directories_that_know_the_same_number_do_not_draw_the_same_next_one(tmp_path: Path) -> None:
    """Of one node: a disk was exchanged, and comes back. Both start while the wall clock is behind."""
    old = tmp_path / "old" / "incarnation"
    known = draw(old, 1000)
    assert draw(tmp_path / "new" / "incarnation", 7, above=known, seed=2) != draw(old, 7, seed=3)


def test_a_start_on_a_full_disk_has_its_number(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "64k") as disk:
        file = disk / "incarnation"
        assert draw(file, 1000) == 1000
        with suppress(OSError):
            (disk / "filler").write_bytes(b"x" * 65_536)
        first = draw(file, 1000)
        second = draw(file, 0)
        assert 1000 < first < second and file.read_bytes() == b"%d\n" % second
        assert not (disk / "incarnation.new").exists()
        with pytest.raises(OSError, match="No space left"):
            draw(disk / "new", 1000)


def test_a_start_under_a_quota_that_is_used_up_has_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "incarnation"
    assert draw(file, 1000) == 1000
    open_ = Path.open

    def refuse(path: Path, *rest: Any, **more: Any) -> Any:
        if path.name.endswith(".new"):
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
        return open_(path, *rest, **more)

    monkeypatch.setattr(Path, "open", refuse)
    assert draw(file, 0) > 1000


@pytest.mark.parametrize("content", [b"", b"\xff\xff", b"12x"])
def test_a_file_that_holds_no_number_leaves_the_wall_clock(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "incarnation"
    file.write_bytes(content)
    with capture_logs() as logs:
        assert draw(file, 1000) == 1000
    assert [entry["file"] for entry in logs] == [str(file)]
    assert draw(file, 0) > 1000


def test_nothing_half_written_is_left(tmp_path: Path) -> None:
    draw(tmp_path / "incarnation", 1000)
    assert [path.name for path in tmp_path.iterdir()] == ["incarnation"]
