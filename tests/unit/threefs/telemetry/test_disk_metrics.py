import os
from pathlib import Path

from threefs.telemetry.disk_metrics import store_disk


def test_the_room_on_the_disk_is_that_for_programs_of_users(tmp_path: Path) -> None:
    found = {sample.name: sample.value for family in store_disk(tmp_path) for sample in family.samples}
    disk = os.statvfs(tmp_path)
    assert found["threefs_store_disk_capacity_bytes"] == disk.f_blocks * disk.f_frsize
    assert 0 <= found["threefs_store_disk_free_bytes"] < found["threefs_store_disk_capacity_bytes"]
