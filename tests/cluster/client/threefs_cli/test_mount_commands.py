import asyncio
import errno
import json
import os
import signal
import time
from pathlib import Path

import pytest
from threefs_cli import mount_commands
from threefs_mount import mountpoints
from threefs_mount.options import MountOptions

from tests.harness.chain_harness import until
from tests.harness.cluster import LocalCluster
from tests.harness.command_line import CommandLine
from tests.harness.mounts import Mount, lacking

DEAD = {errno.ENOTCONN, errno.ECONNABORTED}

needs_mounts = pytest.mark.skipif(bool(lacking()), reason=lacking() or "it can be mounted here")


def test_what_is_run() -> None:
    command = mount_commands.server_command(
        "threefs://a:1", "/mnt", MountOptions(allow_other=False, flags=("ro", "noexec"))
    )
    assert command[1:3] == ["-m", "threefs_mount"] and command[-1] == "/mnt"
    assert command.count("--flag") == 2 and "--private" in command


def test_relative_paths_of_modules_go_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "services")
    assert os.path.isabs(mount_commands.environment()["PYTHONPATH"])


def test_a_place_that_is_no_directory(threefs: CommandLine, tmp_path: Path) -> None:
    result = threefs.run("mount", str(tmp_path / "nowhere"))
    assert result.exit_code == 2 and "not a directory" in result.stderr


@needs_mounts
def test_mounted_and_unmounted(cluster: LocalCluster, tmp_path: Path) -> None:
    mount = Mount(cluster.address, tmp_path / "with space")
    root = mount.mount()
    assert os.path.ismount(root)
    assert mountpoints.servers(str(root), 0) == [mount.pid]
    again = mount.threefs("mount", "--address", cluster.address, str(root))
    assert again.returncode == 2 and "already" in again.stderr
    with open(root / "mounted-and-unmounted", "wb") as file:
        busy = mount.threefs("umount", str(root))
        assert busy.returncode == 1 and "--lazy" in busy.stderr
        file.write(b"x")
    await_exit = mount.threefs("umount", "--json", str(root))
    assert json.loads(await_exit.stdout) == {"mountpoint": str(root), "lazy": False}
    assert not os.path.ismount(root) and mountpoints.servers(str(root), 0) == []
    assert mount.threefs("umount", str(root)).returncode == 1


@needs_mounts
def test_umount_does_not_wait_for_a_mount_that_was_detached_before(cluster: LocalCluster, tmp_path: Path) -> None:
    """It waited for 90 s, and failed, while a program used the first one."""
    mount = Mount(cluster.address, tmp_path / "mnt")
    root = mount.mount()
    first = mount.pid
    with open(root / "held-while-detached", "wb"):
        assert mount.threefs("umount", "--lazy", str(root)).returncode == 0
        assert mount.mount() == root and mount.pid != first
        done = mount.threefs("umount", str(root))
        assert done.returncode == 0, done.stderr
        assert mountpoints.servers(str(root), 0) == [first], "the second one has ended"


async def test_a_mount_that_ctrl_c_breaks_off_leaves_no_process(tmp_path: Path) -> None:
    server = mount_commands.Server(str(tmp_path))
    starting = asyncio.create_task(server.start(["/bin/sh", "-c", "echo $$ >&2; exec sleep 100"]))
    await until(lambda: server.log.exists() and bool(server.log.read_text()))
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    with pytest.raises(ProcessLookupError):
        os.kill(int(server.log.read_text()), 0)


@needs_mounts
def test_errors_are_reported_before_it_returns(tmp_path: Path) -> None:
    mount = Mount("threefs://127.0.0.1:1", tmp_path / "mnt")
    (tmp_path / "mnt").mkdir()
    done = mount.threefs("mount", "--address", "threefs://127.0.0.1:1", str(tmp_path / "mnt"))
    assert done.returncode == 1 and "127.0.0.1:1" in done.stderr


@needs_mounts
def test_a_dead_mount_is_replaced(cluster: LocalCluster, tmp_path: Path) -> None:
    mount = Mount(cluster.address, tmp_path / "mnt")
    with mount as root:
        again = mount.threefs("mount", "--address", cluster.address, str(root))
        assert again.returncode and "mounted at" in again.stderr, "it lives"
        (root / "before").write_bytes(b"content")
        mount.kill()
        with pytest.raises(OSError) as caught:
            os.listdir(root)
        assert caught.value.errno in DEAD
        again = mount.threefs("mount", "--address", cluster.address, str(root))
        assert again.returncode == 0 and "has ended; mounting again" in again.stderr
        assert (root / "before").read_bytes() == b"content"
    assert not os.path.ismount(root), "the dead one is gone as well"


@needs_mounts
def test_a_mount_that_dies_comes_back(cluster: LocalCluster, tmp_path: Path) -> None:
    # The kernel answers from its cache for long, also when the process is dead.
    mount = Mount(cluster.address, tmp_path / "mnt", "--supervise", "--cache", "600")
    with mount as root:
        (root / "outlives its mount").write_bytes(b"content")
        for _ in range(2):
            (child,) = {*mountpoints.servers(str(root), 0)} - {mount.pid}
            os.kill(child, signal.SIGKILL)
            deadline = time.monotonic() + 60
            while True:
                try:
                    assert (root / "outlives its mount").read_bytes() == b"content"
                    break
                except OSError as error:
                    assert error.errno in DEAD | {errno.ENOENT}  # the latter between two system calls
                    assert time.monotonic() < deadline
                    time.sleep(0.1)
    assert mountpoints.servers(str(root), 0) == [] and not os.path.ismount(root)


@needs_mounts
def test_a_dead_mount_is_cleaned_up(cluster: LocalCluster, tmp_path: Path) -> None:
    mount = Mount(cluster.address, tmp_path / "mnt")
    root = mount.mount()
    os.kill(mount.pid, signal.SIGKILL)
    mount.umount()
    assert not os.path.ismount(root)
    with mount:
        assert root.is_dir()
