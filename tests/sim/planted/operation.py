"""Backups, restores, supervised mounts, and what others may read: bugs that only a real test can meet."""

import asyncio
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from threefs_backup.archive import Snapshot, SnapshotWriter
from threefs_backup.follower import Follower
from threefs_backup.log_file import LogFile
from threefs_manager.store import restored_versions
from threefs_manager.store.restore_inquiry import Inquiry
from threefs_mount import supervisor

from tests.sim.planted.registry import plant_for, put
from threefs import cluster_key, routing_changes
from threefs.cluster import data_format
from threefs.cluster.routing_watcher import RoutingWatcher
from threefs.env import directory_lock
from threefs.kv import dump
from threefs.routing import Chain
from threefs.rpc.grpc_binding import ControlServer, _ProofInterceptor

_BACKUP = "unit/client/threefs_backup"
_INQUIRY = "unit/services/threefs_manager/store/test_restore_inquiry.py"
_RESTORE = "unit/services/threefs_manager/store/test_restored_versions.py"


@plant_for(f"{_BACKUP}/test_follower.py::test_a_backup_follows_over_logs_starts_and_lost_connections")
def backup_ends_with_its_snapshot() -> None:
    """What is changed after the snapshot is not archived."""

    async def nothing(self: Follower, snapshot: Snapshot, log: LogFile) -> None:
        pass

    put(Follower, "_read_log", nothing)


@plant_for(f"{_BACKUP}/test_follower.py::test_a_backup_that_is_interrupted_anywhere_can_be_restored")
def old_snapshot_goes_first() -> None:
    """The old snapshot is removed before the new one has its name."""
    publish = SnapshotWriter.publish

    def early(self: SnapshotWriter, snapshot: Snapshot) -> Snapshot:
        shutil.rmtree(self._final.with_name(f"{int(self._final.name) - 1:08d}"), ignore_errors=True)
        return publish(self, snapshot)

    put(SnapshotWriter, "publish", early)


@plant_for(f"{_BACKUP}/test_follower.py::test_the_copy_goes_on_while_a_new_snapshot_is_taken")
def copy_waits_for_its_snapshot() -> None:
    """Nothing is archived while a new snapshot is taken because the log is long."""
    renew = Follower._renew_snapshot

    async def wait(self: Follower) -> None:
        await renew(self)
        await self.snapshot_taken()

    put(Follower, "_renew_snapshot", wait)


@plant_for(f"{_BACKUP}/test_restore.py::test_any_damage_is_found_before_anything_is_written")
def damaged_backup_is_restored() -> None:
    """A snapshot is loaded without a look at its checksums."""
    put(dump, "check", lambda source: None)


@plant_for(f"{_RESTORE}::test_the_target_that_served_last_returns_as_if_all_had_died")
def restored_chains_serve_at_once() -> None:
    """I2: a target that the backup knows as serving may have left its chain since."""

    def unchanged(chain: Chain) -> Chain:
        return chain

    put(restored_versions, "without_serving", unchanged)


@plant_for(f"{_RESTORE}::test_versions_rise_beyond_what_counting_reaches_and_never_fall")
def restored_chains_count_on() -> None:
    """I5: a version that the lost part of the store had given out is given out again."""

    def next_version(version: int, wall_ns: int) -> int:
        return version + 1

    put(restored_versions, "raised_routing_version", next_version)


@plant_for(
    "unit/client/threefs_mount/test_supervisor.py::test_what_was_killed_or_has_crashed_is_started_again_until_it_works"
)
def dead_mount_stays_dead() -> None:
    """I19: the process behind a mount is not started again."""

    async def once(command: Sequence[str], point: str, ready: Any, **more: Any) -> int:
        status, _ = await supervisor._run(command, ready, asyncio.Event())
        return status

    put(supervisor, "supervise", once)


@plant_for("unit/threefs/test_cluster_key.py::test_a_key_is_made_once_and_for_one_user")
def key_is_readable_by_others() -> None:
    """I21: the file of the key has the mode that umask leaves."""
    make = cluster_key.make

    def open_to_others(path: Path, key: str = "") -> str:
        made = make(path, key)
        os.chmod(path, 0o644)
        return made

    put(cluster_key, "make", open_to_others)


@plant_for("unit/threefs/env/test_directory_lock.py::test_a_new_directory_is_private_and_an_open_one_is_made_private")
def data_directory_stays_open_to_others() -> None:
    """I21: what a service stores can be read by other users of the machine."""
    put(directory_lock, "close_to_others", lambda path: None)


@plant_for("unit/threefs/rpc/test_grpc_binding.py::test_with_a_key_health_and_reflection_need_it_too")
def health_and_reflection_need_no_key() -> None:
    """I21: strangers are told which services there are."""
    intercept = _ProofInterceptor.intercept_service

    async def partly(self: _ProofInterceptor, continuation: Any, details: Any) -> Any:
        if details.method.startswith("/grpc."):
            return await continuation(details)
        return await intercept(self, continuation, details)

    put(_ProofInterceptor, "intercept_service", partly)


@plant_for("unit/threefs/cluster/test_data_format.py::test_data_of_a_newer_version_are_refused_and_left_alone")
def data_of_a_newer_version_are_taken_over() -> None:
    """What an older version cannot read, it takes for damage."""

    def overwrite(directory: Path) -> None:
        (directory / data_format.FILE_NAME).write_text(str(data_format.DATA_FORMAT))

    put(data_format, "claim", overwrite)


@plant_for(f"{_INQUIRY}::test_members_that_came_since_the_backup_report_and_those_that_left_need_not")
def members_since_the_backup_are_passed_over() -> None:
    """I2: a member that a move has added since the backup is not asked, though it alone has what came last."""
    put(Inquiry, "_named_by_itself", lambda self, store: None)


@plant_for(
    "unit/threefs/cluster/test_routing_watcher.py"
    "::test_it_takes_changes_of_its_snapshot_and_asks_for_the_whole_after_others"
)
def changes_of_another_snapshot_are_applied() -> None:
    """I5: the changes since a snapshot that this process does not have are put on the one that it has."""

    def blindly(self: RoutingWatcher, address: str, reply: Any) -> Any:
        return routing_changes.from_wire(reply.changes).applied_to(self.routing)

    put(RoutingWatcher, "_later", blindly)


@plant_for("unit/threefs/rpc/test_grpc_binding.py::test_a_server_that_was_suspended_takes_no_call_of_before")
def late_control_calls_are_taken() -> None:
    """A heartbeat from before a suspension is the sign of life of a process that is dead."""
    put(ControlServer, "_check_takes_calls", lambda self: None)


@plant_for(
    "unit/threefs/rpc/test_grpc_binding.py::test_a_server_that_was_suspended_closes_its_connections_and_serves_others[]"
)
def control_connections_outlive_a_suspension() -> None:
    """What lies in the buffers of the network is taken later."""

    async def stay(self: ControlServer) -> None:
        pass

    put(ControlServer, "_close_connections", stay)
