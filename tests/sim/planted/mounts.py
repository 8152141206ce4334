"""Mounts: errors of writing, lost locks, quotas, sessions."""

from typing import Any

from threefs_client.data.errseq import Errseq
from threefs_client.exit_flush import AsyncOpenFiles, OpenFiles
from threefs_mount.cache.page_revalidator import PageRevalidator
from threefs_mount.files.open_file import OpenFile
from threefs_mount.files.table import OpenFileTable

from tests.sim.planted.registry import plant_for, put

_FILES = "unit/client/threefs_mount/files/test_table.py"
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
    "unit/client/threefs_mount/files/test_open_file.py::test_what_is_lost_in_the_background_is_noted_and_what_comes_later_is_not"
)
def background_error_is_not_noted() -> None:
    """I16: what is lost in the background is told to nobody."""
    put(Errseq, "record", lambda self, error: None)


@plant_for(f"{_FILES}::test_who_has_it_open_when_a_lock_is_lost_begins_anew")
def lost_lock_is_not_noticed() -> None:
    """I18: what was written under a lock that is lost is sent all the same."""
    put(OpenFile, "discard", lambda self: None)


@plant_for(f"{_FILES}::test_a_file_does_not_grow_once_the_quota_is_used_up")
def quota_is_ignored() -> None:
    """A mount writes on when the quota is used up."""
    put(OpenFile, "set_over_quota", lambda self, over: None)


@plant_for(f"{_FILES}::test_a_session_that_nobody_could_end_is_ended_later")
def failed_close_leaks_its_session() -> None:
    """A session whose end was not confirmed lasts as long as the mount."""
    put(OpenFileTable, "_schedule_close", lambda self: None)


@plant_for(
    "unit/client/threefs_mount/cache/test_page_revalidator.py::test_pages_of_what_somebody_else_has_changed_go_once"
)
def mapped_pages_stay_as_they_are() -> None:
    """I17: a program that has mapped a file never sees what others change."""

    async def nothing(self: PageRevalidator, files: Any) -> None:
        return

    put(PageRevalidator, "revalidate", nothing)


@plant_for("unit/client/threefs_client/test_exit_flush.py::test_all_are_closed_whatever_becomes_of_one")
def files_left_open_are_forgotten() -> None:
    """A program that ends loses what it has written to files that it did not close."""
    put(OpenFiles, "add", lambda self, file: None)


@plant_for("unit/client/threefs_client/test_exit_flush.py::test_the_end_of_a_loop_closes_what_is_open")
def files_left_open_are_forgotten_with_their_loop() -> None:
    """The same for a program with a loop of its own."""
    put(AsyncOpenFiles, "add", lambda self, file: None)
