"""The RocksDB store below a table: opening it, recovering it after a power cut, and translating its errors."""

import contextlib
import errno
import os
import re
import shutil
from pathlib import Path

from rocksdict import AccessType, BlockBasedOptions, Cache, DBCompressionType, DBRecoveryMode, Options, Rdict

from threefs.errors import EXHAUSTED, FULL_DISK, Corrupt, NoSpace, ThreefsError, Unavailable
from threefs.kv.wal_recovery import KEPT, cut_torn_tails, flushed, gaps, put_aside, rotated, unreadable

BLOCK_CACHE_BYTES = 64 << 20
BLOCK_CACHE = Cache(BLOCK_CACHE_BYTES)  # of all stores of this process: one disk may have 99 targets
_WRITE_BUFFER_BYTES = 32 << 20
_MAX_WAL_BYTES = 256 << 20
_KEEP_LOGS_S = 3600  # a backup that stops for longer has to begin again with a snapshot
_KEEP_LOGS_MIB = 1024
_READ_WRITE, _READ_ONLY = AccessType.read_write(), AccessType.read_only()
_TRIAL = "room"  # the file with which room is tried
_DIRECTORIES = re.compile(r"(?:/[^/\s:]+)+/")  # of the files that RocksDB names
_BLOOM_BITS_PER_KEY = 10
_ROOM_TO_OPEN_BYTES = 1 << 20  # beside twice the size of the logs
_RESERVE_BYTES = 16 << 20  # some 30,000 removals, and more than is added between two looks at the disk
_MAX_MERGE_BYTES = 512 << 20
LONG_LOG_BYTES = 4 << 20
_IN_USE = "is in use by another process"
_NOT_OF_DISK = (_IN_USE, *map(os.strerror, EXHAUSTED))
_FAILED_SYNC = re.compile("While f(data)?sync")
_FULL_DISK = tuple(map(os.strerror, FULL_DISK))
_UNREADABLE_SECTOR = re.compile(rf"While pread .*\.sst: {os.strerror(errno.EIO)}")
_MERGED_FILES = "level0_file_num_compaction_trigger"
_USUAL_MERGED_FILES = 4


def open_store(directory: Path, *, keep_logs: bool = False, merges: bool = True) -> Rdict:
    """Open the store: make its directory if it is missing, and recover. With `keep_logs`, old logs stay for backups.
    Without `merges`, sorted files stay as they are: a store of which one is damaged takes changes only then.

    Raises Unavailable (in use, unreadable), Corrupt, NoSpace.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / _TRIAL).unlink(missing_ok=True)  # of a crash
    parent = os.open(directory.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)
    if unreadable(directory) and not (cut_torn_tails(directory) and not unreadable(directory)):
        raise Corrupt(
            f"the table {directory} is damaged: its log has a gap, or a record of an unknown kind or one too long, "
            "and records behind that place had been flushed"
        )
    options = _options(keep_logs, merges)
    try:
        return _open_rotated(directory, options) if rotated(directory) else _open(directory, options)
    except Exception as error:
        failure = error if isinstance(error, ThreefsError) else error_of(error, f"the table {directory}")
        if isinstance(failure, NoSpace) and drop_kept_logs(directory):
            return open_store(directory, keep_logs=keep_logs, merges=merges)
        if not isinstance(failure, Corrupt) or rotated(directory) or not cut_torn_tails(directory):
            raise failure from error
    try:
        return _open(directory, options)
    except Exception as error:
        raise error_of(error, f"the table {directory}") from error


def _open_rotated(directory: Path, options: Options) -> Rdict:
    """Open a store with several logs. It ends at the first gap between them, if nothing behind the gap was flushed."""
    needed = flushed(directory)
    cut_torn_tails(directory)
    for log, first in gaps(directory):
        found = _last_change_before(directory, log)
        if found + 1 >= first:
            continue  # sorted files have the changes that the log before it has lost
        if found < needed:
            raise Corrupt(
                f"the table {directory} is damaged: change {needed} had been flushed, but the logs end with {found}"
            )
        put_aside(directory, log)
        break
    return _open(directory, options)


def _last_change_before(directory: Path, log: Path) -> int:
    """The last change of the table without this log and all later ones."""
    trial = directory / "trial"
    shutil.rmtree(trial, ignore_errors=True)
    trial.mkdir()
    for path in directory.iterdir():
        later = path.suffix == ".log" and int(path.stem) >= int(log.stem)
        if path.is_file() and path.name not in ("LOCK", "LOG") and not later:
            os.link(path, trial / path.name)
    try:
        store = _open(trial, _options(), _READ_ONLY)
        try:
            return store.latest_sequence_number()
        finally:
            store.close()
    finally:
        shutil.rmtree(trial)


def drop_kept_logs(directory: Path) -> bool:
    """Remove the logs that are kept for backups: on a full disk the table needs their room. A backup that has not read
    them takes a new snapshot. Returns whether there were any."""
    kept = list((directory / KEPT).glob("[0-9]*.log"))
    for log in kept:
        log.unlink(missing_ok=True)
    return bool(kept)


def needed_bytes(directory: Path) -> int:
    """So much must be free to write the content of the logs to sorted files."""
    return 2 * _log_bytes(directory) + _ROOM_TO_OPEN_BYTES


def has_reserve(directory: Path) -> bool:
    """Whether more is free than the store needs to take removals, to merge its sorted files meanwhile, and to be opened
    again after them. A removal adds records, too, so without a reserve a store that has filled its disk could not take
    any."""
    return has_room_to_merge(directory, beside_bytes=_RESERVE_BYTES)


def has_room_to_merge(directory: Path, beside_bytes: int = 0) -> bool:
    """Whether the sorted files can be merged, and the store be opened again after that."""
    free = _free_bytes(directory)
    least = needed_bytes(directory) + beside_bytes
    if free >= least + _MAX_MERGE_BYTES:
        return True
    # A merge writes the new files before it removes the old ones.
    return free >= least + min(_bytes_of(directory, "*.sst"), _MAX_MERGE_BYTES)


def check_room(directory: Path) -> None:
    """Raises NoSpace if the disk may have too little room to write the content of the logs to sorted files."""
    needed = needed_bytes(directory)
    if _free_bytes(directory) < needed or not _takes(directory, needed):
        raise NoSpace(f"the disk of {directory} is full: {needed} bytes must be free")


def _takes(directory: Path, length: int) -> bool:
    """Whether the disk really takes so many bytes more: a quota may refuse what the disk says that it has."""
    trial = directory / _TRIAL
    try:
        with trial.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, length)
    except OSError as error:
        return error.errno not in FULL_DISK  # to open the store meets what else is wrong
    finally:
        trial.unlink(missing_ok=True)
    return True


def merge_at_once(store: Rdict, at_once: bool) -> None:
    """Whether each new sorted file is merged with the older ones, or only a few together. What was removed takes room
    until then."""
    store.set_options({_MERGED_FILES: str(1 if at_once else _USUAL_MERGED_FILES)})


def is_log_long(directory: Path, long_bytes: int = LONG_LOG_BYTES) -> bool:
    """Whether a small reserve would not do for the sorted files of the logs, while they still find room."""
    logs = _log_bytes(directory)
    return logs >= long_bytes and _free_bytes(directory) >= needed_bytes(directory)


def _log_bytes(directory: Path) -> int:
    return _bytes_of(directory, "*.log")


def _bytes_of(directory: Path, pattern: str) -> int:
    found = 0
    for path in directory.glob(pattern):
        with contextlib.suppress(FileNotFoundError):  # it is not needed any more
            found += path.stat().st_size
    return found


def _free_bytes(directory: Path) -> int:
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize


def _open(directory: Path, options: Options, access: AccessType = _READ_WRITE) -> Rdict:
    # Most options belong to the column family. Unless they are named, those with which the store was last open count.
    return Rdict(str(directory), options, column_families={"default": options}, access_type=access)


def _options(keep_logs: bool = False, merges: bool = True) -> Options:
    blocks = BlockBasedOptions()
    blocks.set_block_cache(BLOCK_CACHE)
    blocks.set_bloom_filter(_BLOOM_BITS_PER_KEY, False)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(blocks)
    options.set_compression_type(DBCompressionType.none())
    options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
    options.set_level_zero_file_num_compaction_trigger(_USUAL_MERGED_FILES)
    options.set_disable_auto_compactions(not merges)
    options.set_max_total_wal_size(_MAX_WAL_BYTES)
    if keep_logs:
        options.set_wal_ttl_seconds(_KEEP_LOGS_S)
        options.set_wal_size_limit_mb(_KEEP_LOGS_MIB)
    # A crash cuts the newest WAL anywhere. Damage before its end is an error, and never skipped.
    options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
    options.set_paranoid_checks(True)
    options.set_keep_log_file_num(3)
    options.set_stats_dump_period_sec(0)
    return options


def tells_of_disk(error: ThreefsError) -> bool:
    """Whether a table has failed because of its disk, and not because it is open already, or because this process has
    no descriptors or no memory left. After a sync without memory, what was to reach the disk may be forgotten."""
    return bool(_FAILED_SYNC.search(error.message)) or not any(said in error.message for said in _NOT_OF_DISK)


def error_of(error: Exception, table: str, *, only_copy: bool = False) -> ThreefsError:
    """The error of threefs for an error of the store. `table` says which table it is. Clients read the message, so it
    names files without their directories. A sector that cannot be read is damage to the only copy; where there are
    others, its disk has failed."""
    text = _DIRECTORIES.sub("", str(error))
    if any(said in text for said in _FULL_DISK):
        return NoSpace(f"the disk of {table} is full; the table takes no more writes until it is opened again")
    if "Corruption" in text or (only_copy and _UNREADABLE_SECTOR.search(text)):
        return Corrupt(f"{table} is damaged: {text}")
    if "lock" in text.lower() and "LOCK" in text:
        return Unavailable(f"{table} {_IN_USE}")
    return Unavailable(f"{table} has failed, and refuses all work: {text}")
