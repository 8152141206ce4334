import errno
import os
import stat
from pathlib import Path

import pytest
from threefs_backup import archive
from threefs_backup.archive import SnapshotWriter

from threefs.errors import AlreadyExists, Corrupt, NotFound, Unavailable
from threefs.kv import dump


def make(directory: Path, records: int = 3, lineage: str = "line") -> archive.Snapshot:
    writer = SnapshotWriter(directory, "meta")
    writer.put((b"%d" % number, b"v") for number in range(records))
    return writer.publish(writer.complete(lineage, 17, 1000))


def test_the_newest_whole_snapshot_counts_and_the_older_ones_go(tmp_path: Path) -> None:
    assert archive.newest(tmp_path, "meta") is None
    first = make(tmp_path)
    assert archive.newest(tmp_path, "meta") == first and first.records == 3 and first.change == 17
    interrupted = SnapshotWriter(tmp_path, "meta")
    interrupted.put([(b"a", b"b")])
    assert archive.newest(tmp_path, "meta") == first
    interrupted._out.close()  # as the end of its process does
    second = make(tmp_path, 5)
    assert archive.newest(tmp_path, "meta") == second
    assert [path.name for path in (tmp_path / "meta").iterdir()] == [second.directory.name]
    with second.dump.open("rb") as source:
        assert dump.check(source).records == 5


def test_what_is_being_read_stays_until_the_next_snapshot(tmp_path: Path) -> None:
    first = make(tmp_path)
    with archive.kept(tmp_path), archive.kept(tmp_path):
        second = make(tmp_path, 5)
        assert first.dump.exists() and archive.newest(tmp_path, "meta") == second
    third = make(tmp_path)
    assert [path.name for path in (tmp_path / "meta").iterdir()] == [third.directory.name]


def test_the_last_snapshots_of_the_stores_of_before_stay(tmp_path: Path) -> None:
    """A restore may have left out a part of each."""

    def there() -> list[int]:
        return sorted(int(path.name) for path in (tmp_path / "meta").iterdir())

    for lineage, expected in (("a", [1]), ("a", [2]), ("b", [2, 3]), ("b", [2, 4]), ("c", [2, 4, 5]), ("d", [4, 5, 6])):
        newest = make(tmp_path, lineage=lineage)
        assert there() == expected and archive.newest(tmp_path, "meta") == newest, lineage
    assert [int(path.name) for path in archive.earlier_stores(tmp_path, "meta")] == [5, 4]
    (tmp_path / "meta" / "00000005" / "info.json").write_text("damaged")
    with archive.kept(tmp_path):
        make(tmp_path, lineage="e")
    make(tmp_path, lineage="e")
    assert there() == [4, 6, 8], "also of what was kept for a reader"


def test_one_that_is_abandoned_leaves_the_one_before(tmp_path: Path) -> None:
    first = make(tmp_path)
    writer = SnapshotWriter(tmp_path, "meta")
    writer.abandon()
    assert archive.newest(tmp_path, "meta") == first
    assert len(list((tmp_path / "meta").iterdir())) == 1


def test_no_other_user_can_read_it(tmp_path: Path) -> None:
    with archive.locked(tmp_path / "backup"):
        archive.begin_or_continue(tmp_path / "backup", "c")
        make(tmp_path / "backup")
    for path in [tmp_path / "backup", *(tmp_path / "backup").rglob("*")]:
        if path.name != "lock":
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_a_directory_belongs_to_one_cluster_and_one_process(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="holds no backup"):
        archive.cluster_id_of(tmp_path)
    with archive.locked(tmp_path):
        archive.begin_or_continue(tmp_path, "c")
        archive.begin_or_continue(tmp_path, "c")
        with pytest.raises(AlreadyExists, match="of cluster c, not of d"):
            archive.begin_or_continue(tmp_path, "d")
        with pytest.raises(Unavailable, match="another"), archive.locked(tmp_path):
            pass
    other = tmp_path / "other"
    other.mkdir()
    (other / "photo").touch()
    with pytest.raises(AlreadyExists, match="there is photo"):
        archive.begin_or_continue(other, "c")


def test_a_directory_of_somebody_else_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("theirs")
    with archive.locked(tmp_path):
        assert (tmp_path / "lock").read_text() == "theirs"
    (tmp_path / "lock").unlink()
    (tmp_path / "photo").touch()
    with pytest.raises(AlreadyExists, match="there is photo"), archive.locked(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["photo"]


def test_a_backup_that_has_just_begun_when_the_disk_is_full_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with archive.locked(tmp_path):
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", no_room)
            with pytest.raises(OSError, match="No space"):
                archive.begin_or_continue(tmp_path, "c")
        assert [path.name for path in tmp_path.iterdir() if path.name != "lock"], "it has left something"
        archive.begin_or_continue(tmp_path, "c")
    assert archive.cluster_id_of(tmp_path) == "c"


def test_a_power_cut_takes_the_name_of_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Directories have their names on the disk before the backup counts."""
    synced: set[Path] = set()

    def note(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.update(path.iterdir() if path.is_dir() else ())

    monkeypatch.setattr(os, "fsync", note)
    backup = tmp_path / "backup"
    with archive.locked(backup):
        archive.begin_or_continue(backup, "c")
        snapshot = make(backup)
    assert {backup, backup / "backup.json", backup / "meta", snapshot.directory} <= synced


def test_a_damaged_description_is_reported(tmp_path: Path) -> None:
    snapshot = make(tmp_path)
    for content in ("", "[]", "{}", '{"lineage": "x"}'):
        (snapshot.directory / "info.json").write_text(content)
        with pytest.raises(Corrupt, match=r"info\.json"):
            archive.newest(tmp_path, "meta")


def test_a_snapshot_that_cannot_be_read_is_damaged(tmp_path: Path) -> None:
    """The error of the disk ended the backup, at each start of it."""
    snapshot = make(tmp_path)
    snapshot.dump.unlink()
    snapshot.dump.symlink_to("/proc/self/mem")  # nothing lies at its beginning, and the kernel says EIO
    with pytest.raises(Corrupt, match=r"base\.dump"):
        archive.check_dump(snapshot)
