import errno
import os
from pathlib import Path
from typing import Any

import pytest
from threefs_backup import log_file
from threefs_backup.log_file import LogFile, LogState, frames, log_state

from tests.harness.bad_sectors import cannot_be_read
from threefs.errors import Corrupt
from threefs.wire import backup_pb2 as pb


def write(first: int, changes: int = 1, batch: bytes = b"batch") -> pb.LogWrite:
    return pb.LogWrite(first=first, changes=changes, batch=batch)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Changes 11 to 15, with a moment in the middle and one at the end."""
    log = LogFile(tmp_path / "log", 10, 100)
    assert (log.change, log.as_of_ns, log.length_bytes) == (10, 100, 0)
    log.append([write(11, 3), write(14)], 200)
    log.append([write(15, 1, b"x" * 3000)], 300)
    log.close()
    return tmp_path / "log"


def test_what_was_appended_is_read(path: Path) -> None:
    found = [(frame.first, frame.changes, frame.time_ns, len(frame.batch)) for frame in frames(path, 10)]
    assert found == [(11, 3, 0, 5), (14, 1, 0, 5), (15, 0, 200, 0), (15, 1, 0, 3000), (16, 0, 300, 0)]
    assert log_state(path, 10, 100).change == 15 and log_state(path, 10, 100).as_of_ns == 300
    assert path.stat().st_mode & 0o777 == 0o600


def test_it_goes_on_behind_an_end_that_is_cut_off_anywhere(path: Path) -> None:
    content = path.read_bytes()
    ends = [0, *(frame.end for frame in frames(path, 10))]
    for cut in [*range(ends[3] + 40), *range(ends[4] - 3, len(content))]:
        path.write_bytes(content[:cut])
        log = LogFile(path, 10, 100)
        assert log.length_bytes == max(end for end in ends if end <= cut)
        log.append([write(log.change + 1)], 400)
        log.close()
        assert log_state(path, 10, 100).as_of_ns == 400


@pytest.mark.slow
def test_damage_in_the_middle_is_reported(path: Path) -> None:
    content = path.read_bytes()
    last = [frame.end for frame in frames(path, 10)][-2]
    for offset in range(0, last, 7):
        damaged = bytearray(content)
        damaged[offset] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(Corrupt, match=r"damaged at byte|goes from change"):
            list(frames(path, 10))
        with pytest.raises(Corrupt):
            LogFile(path, 10, 100)


@pytest.mark.parametrize("times", [1, 1 << 30])
def test_bytes_that_cannot_be_read_are_damage_and_no_end(
    path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """The error of the disk was no damage. An end is truncated, so it must not look like one, also if it passes."""
    content = path.read_bytes()
    ends = [0, *(frame.end for frame in frames(path, 10))]
    for begin in range(0, len(content), 90):
        whole = max(end for end in ends if end <= begin)
        for read in (lambda: list(frames(path, 10)), lambda: LogFile(path, 10, 100)):
            with monkeypatch.context() as disk, pytest.raises(Corrupt, match=f"{path} cannot be read at byte"):
                cannot_be_read(disk, path, begin, begin + 50, times=times)
                read()
        with monkeypatch.context() as disk:
            cannot_be_read(disk, path, begin, begin + 50, times=times)
            assert [0, *(frame.end for frame in frames(path, 10, up_to_damage=True))][-1] == whole
    assert path.read_bytes() == content


def test_memory_that_is_short_is_no_damage(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for up_to_damage in (False, True):
        with monkeypatch.context() as machine, pytest.raises(OSError, match="Cannot allocate") as caught:
            cannot_be_read(machine, path, 0, 50, errno.ENOMEM)
            list(frames(path, 10, up_to_damage=up_to_damage))
        assert not isinstance(caught.value, Corrupt)


def test_changes_that_do_not_follow_are_refused(path: Path) -> None:
    log = LogFile(path, 10, 100)
    for first, changes in ((15, 1), (17, 1), (16, 0)):
        with pytest.raises(Corrupt, match="after change 15"):
            log.append([write(first, changes)], None)
    log.append([write(16)], None)
    log.close()
    with pytest.raises(Corrupt, match="from change 9 to 11"):
        list(frames(path, 9))


def test_a_full_disk_leaves_what_was_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogFile(path, 10, 100)
    before = path.read_bytes()
    real = os.write

    def full(descriptor: int, content: memoryview) -> int:
        real(descriptor, content[:5])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        log.append([write(16)], 400)
    monkeypatch.undo()
    assert path.read_bytes() == before
    log.append([write(16)], 400)
    log.close()
    assert log_state(path, 10, 100).change == 16


@pytest.mark.parametrize("failing", ["write", "fdatasync"])
def test_what_a_failed_append_has_left_is_gone_before_the_next_one(
    path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """It could not be truncated when the append failed, nor when it was tried again."""
    log = LogFile(path, 10, 100)
    real = os.write

    def fails(descriptor: int, content: bytes = b"") -> int:
        real(descriptor, content[:5])
        raise OSError(28, "No space left on device")

    def not_truncated(descriptor: int, length: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as disk:
        disk.setattr(os, "ftruncate", not_truncated)
        with disk.context() as full:
            full.setattr(os, failing, fails)
            with pytest.raises(OSError, match="No space"):
                log.append([write(16, 1, b"y" * 100)], 400)
        with pytest.raises(OSError, match="Input/output"):
            log.append([write(16)], 400)
    assert log.change == 15
    log.append([write(16)], 400)
    log.append([write(17)], 500)
    log.close()
    assert log_state(path, 10, 100) == LogState(17, 500, path.stat().st_size, log.checksum)


def test_a_log_that_is_appended_to_while_it_is_read_is_not_damaged(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a test of the restore does, while the backup goes on."""
    log = LogFile(path, 10, 100)
    looks_behind = log_file._has_frame_after

    def appended(*arguments: Any) -> bool:
        log.append([write(log.change + 1), write(log.change + 2)], 400)
        return looks_behind(*arguments)

    monkeypatch.setattr(log_file, "_has_frame_after", appended)
    assert log_state(path, 10, 100).change == 15
    assert log_state(path, 10, 100).change == 17
    log.close()
