import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from threefs_mount import mountpoints
from threefs_mount.mountpoints import Mount

from threefs.errors import InvalidArgument, NotFound

INFO = (
    b"22 1 254:0 / / rw - ext4 /dev/vda rw\n"
    b"40 22 0:39 / /mnt/with\\040space rw,nosuid shared:1 - fuse.threefs threefs://a:1 rw,user_id=107,group_id=0\n"
    b"41 22 0:40 / /mnt/x rw - fuse.sshfs host: rw\n"
)


def test_the_text_of_the_kernel() -> None:
    assert mountpoints.parse(INFO) == [Mount("/mnt/with space", "threefs://a:1", "0:39", 107)]


def test_a_place_is_named_without_looking_at_it(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    real = os.path.realpath(tmp_path)
    assert mountpoints.kernel_path(str(tmp_path / "link" / "x")) == f"{real}/real/x"
    assert mountpoints.kernel_path("/") == "/"


def test_only_directories_can_be_mounted_on(tmp_path: Path) -> None:
    assert mountpoints.check(str(tmp_path)) == os.path.realpath(tmp_path)
    with pytest.raises(InvalidArgument, match="not a directory"):
        mountpoints.check(str(tmp_path / "nowhere"))


@pytest.mark.processes
def test_a_mount_that_answers_is_not_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = Mount(mountpoints.kernel_path(str(tmp_path)), "threefs://a:1", "0:39", 107)
    gone = Mount(there.point + "/gone", "threefs://a:1", "0:40", 107)
    monkeypatch.setattr(mountpoints, "mounts", lambda: [there, gone])
    assert mountpoints.answers(there.point) and not mountpoints.is_dead(there.point)
    for point in (gone.point, there.point + "/unmounted"):
        assert not mountpoints.answers(point) and not mountpoints.is_dead(point)


def test_what_is_not_mounted_cannot_be_unmounted(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        mountpoints.unmount(str(tmp_path))
    assert mountpoints.servers(str(tmp_path), os.geteuid()) == []


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., int]]:
    """Starts a process, whose pid it returns, with the words of one that serves a mount at this path, or others."""
    running = []
    module = tmp_path / "modules" / "threefs_mount.py"
    module.parent.mkdir()
    module.write_text(
        "import subprocess, sys, time\n"
        "if '--supervise' in sys.argv:\n"
        "    subprocess.Popen([word for word in sys.orig_argv if word != '--supervise'])\n"
        "else:\n"
        "    print(flush=True)\n"
        "time.sleep(100)\n"
    )

    def start(*words: str) -> int:
        command = [sys.executable, *(words or ("-m", "threefs_mount", "--address", "threefs://a:1")), str(tmp_path)]
        environment = {"PYTHONPATH": str(module.parent)}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, start_new_session=True)
        running.append(process)
        assert process.stdout is not None and process.stdout.readline()
        return process.pid

    yield start
    for process in running:
        with process:
            os.killpg(process.pid, signal.SIGKILL)


def test_only_the_newest_process_of_a_place_serves_it(start: Callable[..., int], tmp_path: Path) -> None:
    """`umount` waited for one whose mount had been detached, and that a program still used, and failed."""
    user = os.geteuid()
    first = start()
    assert mountpoints.servers(str(tmp_path), user) == [first]
    assert mountpoints.servers(str(tmp_path), user + 1) == mountpoints.servers(str(tmp_path / "other"), user) == []
    second = start()
    assert mountpoints.servers(str(tmp_path), user) == [second]
    start("-c", "import time; print(flush=True); time.sleep(100)", "threefs_mount")
    assert mountpoints.servers(str(tmp_path), user) == [second], "another program with these words"


def test_a_supervisor_and_its_process_serve_together(start: Callable[..., int], tmp_path: Path) -> None:
    start()
    supervisor = start("-m", "threefs_mount", "--supervise")
    (child,) = {*mountpoints.servers(str(tmp_path), os.geteuid())} - {supervisor}
    assert Path(f"/proc/{child}/stat").read_text().split()[3] == str(supervisor)
