import os
import socket
from pathlib import Path

import pytest

from threefs.env.systemd_notify import notify, watchdog_s


@pytest.mark.parametrize("abstract", [False, True])
def test_lines_go_to_the_socket_that_is_named(abstract: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"@threefs-test-{os.getpid()}" if abstract else str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind("\0" + name[1:] if abstract else name)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        notify("READY=1", "STATUS=well")
        assert listener.recv(100) == b"READY=1\nSTATUS=well"
    notify("STOPPING=1")  # nobody listens any more: no error


def test_without_a_service_manager_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify("READY=1")


def test_a_service_manager_that_takes_no_message_delays_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as filler,
    ):
        listener.bind(str(tmp_path / "socket"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "socket"))
        filler.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                filler.sendto(b"x", str(tmp_path / "socket"))
        notify("WATCHDOG=1")  # it would wait here for ever


@pytest.mark.parametrize(
    ("usec", "pid", "seconds"),
    [("30000000", None, 30.0), (None, None, 0.0), ("x", None, 0.0), ("5000000", "1", 0.0), ("5000000", "own", 5.0)],
)
def test_the_watchdog_is_fed_only_by_the_process_that_it_watches(
    usec: str | None, pid: str | None, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("WATCHDOG_USEC", usec), ("WATCHDOG_PID", str(os.getpid()) if pid == "own" else pid)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    assert watchdog_s() == seconds
