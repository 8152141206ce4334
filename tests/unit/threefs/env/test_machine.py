import os
import socket
from pathlib import Path

import pytest

from threefs.env import machine


def test_a_port_that_another_process_has_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        port = taken.getsockname()[1]
        why = machine.refused_port("127.0.0.1", port)
    assert why is not None and "in use" in why
    assert machine.refused_port("127.0.0.1", port) is None


def test_a_free_port_can_be_listened_at() -> None:
    assert machine.refused_port("127.0.0.1", machine.free_port("127.0.0.1")) is None


def test_an_address_of_another_machine_is_refused() -> None:
    assert machine.refused_port("192.0.2.1", 7000) is not None  # reserved for documentation
    assert machine.refused_port("no.such.name.invalid", 7000) is not None
    assert machine.refused_port("a" * 70, 7000) is not None  # no name is so long


def test_syncs_are_measured_and_nothing_is_left(tmp_path: Path) -> None:
    found = machine.measure_syncs(tmp_path)
    assert 0 < found.median_s <= found.slowest_s
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        machine.measure_syncs(tmp_path / "missing")


def test_the_file_system_of_a_directory_is_found(tmp_path: Path) -> None:
    found = machine.file_system(tmp_path)
    assert found.kind and os.path.ismount(found.mount_point)
    assert 0 < found.free_bytes <= found.capacity_bytes
    memory = machine.file_system(Path("/dev/shm"))
    assert (memory.kind, memory.mount_point) == ("tmpfs", "/dev/shm") and "rw" in memory.options


def test_this_machine_is_described() -> None:
    version, limit = machine.kernel_version(), machine.descriptor_limit()
    assert version is not None and version > (4, 0)
    assert limit is None or limit > 0
    found = machine.clock()
    assert found.suspended_s > -1 and found.in_step in (True, False, None)
