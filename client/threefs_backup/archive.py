"""A backup on a disk.

    DIRECTORY/backup.json              the cluster that it is a backup of
    DIRECTORY/manager/00000001/        a snapshot of the manager's store, and a log of the changes since
        base.dump  info.json  log
    DIRECTORY/meta/00000001/           the same for the metadata

A snapshot is written under a temporary name. When it is complete, and its log has what the log of the one before has,
it gets its final name, and only then older snapshots are removed. So a backup that is interrupted anywhere has a whole
snapshot with a log. The last snapshot of a store that was in the place of the present one before a restore stays, with
its log: the restore may have left out a part of it. Only the owner can read the files, because they contain names of
files.
"""

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from threefs.env.disk import sync_directory
from threefs.errors import AlreadyExists, Corrupt, NotFound, Unavailable
from threefs.kv import dump
from threefs.kv.dump import Content, Writer, file_bytes
from threefs.kv.engine_api import Pair

#: In the order in which they are copied. The manager comes last, so its copy has everything that the metadata refers
#: to.
ROLES = ("meta", "manager")
_FORMAT = 1
_PARTIAL = ".partial"
_DESCRIPTION = "backup.json"
#: Stores of before a restore whose last snapshots are kept: after one that was restored twice, still what was lost.
_EARLIER_STORES = 2


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot of a store."""

    directory: Path
    lineage: str
    change: int  # number of its newest change
    taken_ns: int  # it has everything that was acknowledged before this moment
    records: int
    length_bytes: int

    @property
    def dump(self) -> Path:
        return self.directory / "base.dump"

    @property
    def log(self) -> Path:
        return self.directory / "log"


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Lock a backup, so that one process at a time writes to it.

    Raises Unavailable, NotFound if the parent is missing (a mistyped name, or a disk that is not mounted), and
    AlreadyExists, before anything in it is changed, if the directory has something else in it.
    """
    try:
        _make(directory)
    except FileNotFoundError:
        raise NotFound(
            f"{directory.parent} does not exist: mount the disk, correct the name, or make that directory first"
        ) from None
    if not (directory / _DESCRIPTION).exists():
        _check_free(directory)
    with (directory / "lock").open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Unavailable(f"another `threefs backup` is at work in {directory}") from None
        yield


@contextlib.contextmanager
def kept(directory: Path) -> Iterator[None]:
    """While a backup is read: if another process continues it meanwhile, that one removes no snapshot."""
    with contextlib.ExitStack() as stack:
        for store in (directory / role for role in ROLES):
            if store.is_dir():
                stack.enter_context(_flocked(store, fcntl.LOCK_SH))
        yield


@contextlib.contextmanager
def _flocked(directory: Path, how: int) -> Iterator[None]:
    """Raises BlockingIOError. A file system without locks of directories gives none."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, how)
        except BlockingIOError:
            raise
        except OSError:
            pass
        yield
    finally:
        os.close(descriptor)


def begin_or_continue(directory: Path, cluster_id: str) -> None:
    """Begin a backup of a cluster, or continue it. Raises AlreadyExists if the directory has anything else in it."""
    file = directory / _DESCRIPTION
    if file.exists():
        found = cluster_id_of(directory)
        if found != cluster_id:
            raise AlreadyExists(f"{directory} is a backup of cluster {found}, not of {cluster_id}; choose another one")
        return
    _check_free(directory)
    write_json(file, {"format": _FORMAT, "cluster_id": cluster_id})


def _check_free(directory: Path) -> None:
    fresh = _fresh_name(directory / _DESCRIPTION)  # of an attempt that was killed, or for which the disk had no room
    unexpected = sorted(entry.name for entry in directory.iterdir() if entry.name not in ("lock", fresh.name))
    if unexpected:
        raise AlreadyExists(
            f"{directory} is not empty and holds no backup (there is {unexpected[0]}); choose another directory"
        )


def cluster_id_of(directory: Path) -> str:
    """Raises NotFound, Corrupt."""
    file = directory / _DESCRIPTION
    if not file.is_file():
        raise NotFound(f"{directory} holds no backup: there is no {file.name} in it")
    return str(_json(file, ("format", "cluster_id"))["cluster_id"])


def newest(directory: Path, role: str) -> Snapshot | None:
    """The newest complete snapshot of a store. Raises Corrupt."""
    whole = _whole(directory / role)
    return _checked(whole[-1]) if whole else None


def numbered(directory: Path, role: str, number: int) -> Snapshot | None:
    """The complete snapshot of a store that has this number. Raises Corrupt."""
    path = directory / role / _name(number)
    return _checked(path) if path.is_dir() else None


def earlier_stores(directory: Path, role: str) -> list[Path]:
    """The last snapshots of stores that were in the place of the present one, the newest first."""
    found: list[Path] = []
    lineage: str | None = None
    for path in reversed(_whole(directory / role)):
        with contextlib.suppress(Corrupt):  # nobody can restore it
            before, lineage = lineage, _described(path).lineage
            if before not in (None, lineage):
                found.append(path)
    return found[:_EARLIER_STORES]


def _whole(store: Path) -> list[Path]:
    return sorted(path for path in store.glob("[0-9]*") if path.name.isdecimal())


def _name(number: int) -> str:
    return f"{number:08d}"


def _described(path: Path) -> Snapshot:
    return Snapshot(path, **_json(path / "info.json", ("lineage", "change", "taken_ns", "records", "length_bytes")))


def _checked(path: Path) -> Snapshot:
    snapshot = _described(path)
    expected = file_bytes(Content(snapshot.records, snapshot.length_bytes))
    length = snapshot.dump.stat().st_size if snapshot.dump.exists() else 0
    if length != expected:
        raise Corrupt(f"{snapshot.dump} has {length} bytes, and should have {expected}")
    return snapshot


def check_dump(snapshot: Snapshot) -> None:
    """Raises Corrupt if a byte of the snapshot has changed since it was written, or cannot be read any more."""
    try:
        with snapshot.dump.open("rb") as source:
            dump.check_whole(source)
    except OSError as error:  # Corrupt is one
        raise Corrupt(f"{snapshot.dump}: {error}") from None


class SnapshotWriter:
    """Writes a snapshot. It does not count before it is published."""

    def __init__(self, directory: Path, role: str) -> None:
        self._store = directory / role
        _make(self._store)
        for old in self._store.glob(f"*{_PARTIAL}"):
            shutil.rmtree(old)
        numbers = [int(path.name) for path in self._store.iterdir() if path.name.isdecimal()]
        self._final = self._store / _name(max(numbers, default=0) + 1)
        self._partial = self._final.with_name(self._final.name + _PARTIAL)
        self._partial.mkdir(mode=0o700)
        descriptor = os.open(self._partial / "base.dump", os.O_WRONLY | os.O_CREAT, 0o600)
        self._out = os.fdopen(descriptor, "wb")
        self._dump = Writer(self._out)

    @property
    def log(self) -> Path:
        """Of the changes since, under the temporary name of the snapshot."""
        return self._partial / "log"

    def put(self, pairs: Iterable[Pair]) -> None:
        self._dump.put_many(pairs)

    def complete(self, lineage: str, change: int, taken_ns: int) -> Snapshot:
        """Make the snapshot complete and durable, still under its temporary name. Its log is empty, unless it was
        begun."""
        content = self._dump.end()
        self._out.flush()
        os.fsync(self._out.fileno())
        self._out.close()
        snapshot = Snapshot(self._partial, lineage, change, taken_ns, content.records, content.length_bytes)
        info = {name: value for name, value in asdict(snapshot).items() if name != "directory"}
        write_json(self._partial / "info.json", info)
        os.close(os.open(snapshot.log, os.O_WRONLY | os.O_CREAT, 0o600))
        sync_directory(self._partial)
        return snapshot

    def publish(self, snapshot: Snapshot) -> Snapshot:
        """Give the complete snapshot its name, in one step, and remove older ones, but the last ones of other stores. A
        log that is open stays so. While somebody reads the backup, older ones stay until the next one is complete.

        After an error only the directory says which snapshot is the newest.
        """
        self._partial.rename(self._final)
        sync_directory(self._store)
        with contextlib.suppress(BlockingIOError), _flocked(self._store, fcntl.LOCK_EX | fcntl.LOCK_NB):
            kept = (self._final, *earlier_stores(self._store.parent, self._store.name))
            for old in self._store.iterdir():
                if old not in kept:
                    shutil.rmtree(old)
        return replace(snapshot, directory=self._final)

    def abandon(self) -> None:
        with contextlib.suppress(OSError):  # on a full disk the end of what was put cannot be written
            self._out.close()
        shutil.rmtree(self._partial, ignore_errors=True)


def write_json(file: Path, content: dict[str, Any]) -> None:
    """Replace `file` in one step; the new content is durable when this returns."""
    fresh = _fresh_name(file)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
        json.dump(content, out, indent=2)
        out.flush()
        os.fsync(out.fileno())
    fresh.replace(file)
    sync_directory(file.parent)


def _fresh_name(file: Path) -> Path:
    return file.with_name(file.name + ".new")


def _json(file: Path, names: tuple[str, ...]) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Corrupt(f"{file} cannot be read: {error}") from None
    if not isinstance(found, dict) or set(found) != set(names) or found.get("format", _FORMAT) != _FORMAT:
        raise Corrupt(f"{file} is damaged, or of another format than this version reads")
    return found


def _make(directory: Path) -> None:
    """Make it durably, if it is missing: what is in it is of no use to anybody if a power cut takes its name."""
    is_new = not directory.exists()
    directory.mkdir(mode=0o700, exist_ok=True)
    if is_new:
        sync_directory(directory.parent)
