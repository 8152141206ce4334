"""Mounts: errors of writing, lost locks, quotas, sessions."""

import contextlib
from typing import Any

from threefs_client.data.errseq import Errseq
from threefs_client.data.handles import AppendRange, Handle
from threefs_client.data.reads import ReadFile
from threefs_client.exit_flush import AsyncOpenFiles, OpenFiles
from threefs_client.metadata.locks import LockOwner
from threefs_client.metadata.session_closer import SessionCloser
from threefs_mount.cache.page_revalidator import PageRevalidator
from threefs_mount.files.deferred_closes import DeferredCloses
from threefs_mount.files.open_file import OpenFile

from tests.sim.planted.registry import plant_for, put
from threefs.errors import ThreefsError

_FILES = "unit/client/threefs_mount/files/test_open_file_table.py"
_HANDLES = "unit/client/threefs_mount/files/test_open_handle.py"
_LOCKS = "unit/client/threefs_client/metadata/test_locks.py"
_APPENDS = "unit/client/threefs_client/data/test_append_retry.py"
_ERRORS = "unit/client/threefs_client/data/test_errseq.py"


@plant_for(f"{_ERRORS}::test_every_history")
def close_takes_the_error() -> None:
    """I16: the close of an inherited descriptor takes the error that fsync should tell of."""
    since = Errseq.check

    def taking(self: Errseq, seen: int) -> Exception | None:
        error = since(self, seen)
        if error is not None:
            self._error = None
        return error

    put(Errseq, "check", taking)


@plant_for(f"{_ERRORS}::test_every_history")
def error_is_told_to_one_handle() -> None:
    """I16: the first fsync takes the error from all other handles."""
    tell = Errseq.check_and_advance

    def once(self: Errseq, seen: int) -> Any:
        told = tell(self, seen)
        self._error = None
        return told

    put(Errseq, "check_and_advance", once)


@plant_for(
    "unit/client/threefs_mount/files/test_open_file.py::test_fdatasync_stores_bytes_and_reports_only_what_readers_could_not_find"
)
def fdatasync_keeps_a_new_length_for_itself() -> None:
    """I16: bytes behind the length that the meta service knows are durable, and no reader finds them."""
    put(Handle, "length_is_reported", property(lambda self: True))


@plant_for(
    "unit/client/threefs_mount/files/test_open_file.py::test_what_is_lost_in_the_background_is_noted_and_what_comes_later_is_not"
)
def background_error_is_not_noted() -> None:
    """I16: what is lost in the background is told to nobody."""
    put(Errseq, "record", lambda self, error: None)


@plant_for(f"{_FILES}::test_a_program_that_has_the_file_open_when_a_lock_is_lost_begins_anew")
def lost_lock_is_not_noticed() -> None:
    """I18: what was written under a lock that is lost is sent all the same."""
    put(OpenFile, "discard", lambda self: None)


@plant_for(f"{_HANDLES}::test_nothing_is_sent_to_a_file_that_was_removed_when_the_lease_ended[write]")
def bytes_are_sent_without_a_session() -> None:
    """What a mount sends after a sleep makes chunks of a file that was removed meanwhile."""

    async def never(self: OpenFile) -> None:
        pass

    put(OpenFile, "_confirm_session", never)


@plant_for(f"{_FILES}::test_the_session_of_an_open_whose_answer_was_lost_is_ended[True-open]")
def session_of_a_lost_answer_stays() -> None:
    """A removed file keeps its room for as long as the mount lives."""
    put(SessionCloser, "close_if_opened", lambda self, find, session, caller: None)


@plant_for(f"{_LOCKS}::test_who_has_a_lock_and_asks_for_a_stronger_one_keeps_it_when_that_fails[away]")
def failed_upgrade_takes_the_lock_away() -> None:
    """Two have a lock: the one that relies on what it had before, and the next one."""
    put(LockOwner, "_acquire_failed", lambda self, error, start, end: self._unlock_soon(start, end))


@plant_for(f"{_LOCKS}::test_a_lock_whose_unlock_nobody_confirms_is_unlocked_when_somebody_answers")
def unlock_is_tried_once() -> None:
    """Nobody has the lock of a file that was closed while no service answered, and nobody gets it."""

    async def once(self: LockOwner) -> None:
        with contextlib.suppress(ThreefsError):
            await self.release()

    put(LockOwner, "release_all", once)


@plant_for(f"{_APPENDS}::test_an_append_whose_place_was_cut_off_gets_another_one[over-handle]")
def append_keeps_its_place_of_before_the_truncate() -> None:
    """It lies over what others have appended since, or behind zeros."""
    put(AppendRange, "is_cut", lambda self, inode: False)


@plant_for(f"{_APPENDS}::test_a_report_during_an_append_after_a_truncate_does_not_end_it")
def report_keeps_the_greatest_end_of_all_appends() -> None:
    """It ends the place of an append that is under way after a truncate: readers see zeros there."""

    def finished(self: Handle, reserved: AppendRange) -> None:
        version, end = self._last_append
        self._last_append = max(version, reserved.truncate_version), max(end, reserved.end)

    put(Handle, "append_finished", finished)


@plant_for(f"{_FILES}::test_a_file_does_not_grow_once_the_quota_is_used_up")
def quota_is_ignored() -> None:
    """A mount writes on when the quota is used up."""
    put(OpenFile, "set_over_quota", lambda self, over: None)


@plant_for("unit/client/threefs_mount/files/test_deferred_closes.py::test_a_session_whose_end_failed_is_ended_later")
def failed_close_leaks_its_session() -> None:
    """A session whose end was not confirmed lasts as long as the mount."""
    put(DeferredCloses, "_schedule", lambda self: None)


@plant_for(
    "unit/client/threefs_mount/cache/test_page_revalidator.py::test_pages_of_files_that_others_have_changed_are_dropped_once"
)
def mapped_pages_stay_as_they_are() -> None:
    """I17: a program that has mapped a file never sees what others change."""

    async def nothing(self: PageRevalidator, files: Any) -> None:
        return

    put(PageRevalidator, "revalidate", nothing)


@plant_for(f"{_FILES}::test_a_late_answer_takes_no_write_back")
def late_answer_is_believed() -> None:
    """I17: an answer from before a truncate, which comes late, takes the length back."""
    put(ReadFile, "is_late", lambda self, inode, lease: False)


@plant_for(f"{_FILES}::test_what_was_under_way_when_the_session_was_lost_is_reported[append]")
def lost_handle_is_forgotten() -> None:
    """I11: what was being written when the session was lost is durable, and lies behind the end of the file."""
    put(Handle, "report_for", lambda self, earlier: None)


@plant_for("unit/client/threefs_client/test_exit_flush.py::test_all_are_closed_whatever_becomes_of_one")
def files_left_open_are_forgotten() -> None:
    """A program that ends loses what it has written to files that it did not close."""
    put(OpenFiles, "add", lambda self, file: None)


@plant_for("unit/client/threefs_client/test_exit_flush.py::test_the_end_of_a_loop_closes_what_is_open")
def files_left_open_are_forgotten_with_their_loop() -> None:
    """The same for a program with a loop of its own."""
    put(AsyncOpenFiles, "add", lambda self, file: None)
