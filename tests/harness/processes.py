"""Real service processes for tests."""

import contextlib
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
START_S = 120.0  # a loaded machine


def environment() -> dict[str, str]:
    """What a child needs to import the programs from this tree."""
    paths = [str(ROOT), str(ROOT / "services"), str(ROOT / "client")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def toml(settings: dict[str, Any]) -> str:
    lines = []
    for name, value in settings.items():
        text = str(value).lower() if isinstance(value, bool) else value
        lines.append(f"{name} = {text}" if isinstance(value, int | float) else f'{name} = "{text}"')
    return "\n".join(lines) + "\n"


#: Below those that services find for themselves (`threefs/env/ports.py`) or the kernel gives to sockets that name none:
#: one of these that is free now, or
#: from the end of a process to its next start, may at any time become the port of a server of another test.
_OWN_PORTS = range(12_000, 22_000)
_PORTS: set[int] = set()  # that this process was given: nobody may listen there yet


def free_port() -> int:
    """For those who must know a port before anybody serves there, or who serve there again later. No port is given
    twice, nor to two workers of one run of the tests."""
    while True:
        port = _draw_port()
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            port = int(probe.getsockname()[1])
            if port not in _PORTS:
                _PORTS.add(port)
                return port


def _draw_port() -> int:
    """One of the part of this worker; 0, for any, where the kernel gives away those ports too."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    if lowest < _OWN_PORTS.stop:
        return 0
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return secrets.choice(_OWN_PORTS[worker % workers :: workers])


class Program:
    """`python -m MODULE --settings FILE`. `addresses` are those of its `ready` line."""

    def __init__(self, module: str, directory: Path, prefix: Sequence[str] = (), **settings: Any) -> None:
        """`prefix` is a command that runs the one behind it. It may be another one at the next start."""
        directory.mkdir(parents=True, exist_ok=True)
        self.module = module
        self.prefix = list(prefix)
        self.settings = {"data_dir": directory / "data", **settings}
        self.addresses: list[str] = []
        self._file = directory / "settings.toml"
        self._log = directory / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = False

    def start(self) -> "Program":
        """Start, or start again, and wait until it serves."""
        self.launch()
        return self.wait_ready()

    def launch(self) -> None:
        if self._process is not None:
            assert self._process.poll() is not None, "it runs already"
            self._reap()
        self._ready = False
        self._file.write_text(toml(self.settings))
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self.prefix, sys.executable, "-m", self.module, "--settings", str(self._file)],
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment(),
            )

    def wait_ready(self) -> "Program":
        process = self.process
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], START_S)
        line = process.stdout.readline().decode() if readable else ""
        assert line.startswith("ready "), f"{self.module} did not get ready: {line!r}\n{self.log()}"
        self.addresses = line.split()[1:]
        self._ready = True
        return self

    def settle(self) -> None:
        """Wait until it serves, if it was launched and nobody has waited: until then SIGTERM just ends it."""
        if not self._ready:
            self.wait_ready()

    @property
    def launched(self) -> bool:
        return self._process is not None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "it was never started"
        return self._process

    @property
    def address(self) -> str:
        return self.addresses[0]

    def log(self) -> str:
        return self._log.read_text(errors="replace")[-4000:] if self._log.exists() else ""

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self._reap()

    def stop(self) -> None:
        """SIGTERM, and it must end well."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self._reap()
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.module} did not stop\n{self.log()}") from None
        assert code == 0, f"{self.module} exited with {code}\n{self.log()}"

    def _reap(self) -> int:
        code = self.process.wait(timeout=START_S)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def __enter__(self) -> "Program":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            if kind is None:
                self.stop()
            else:
                self.kill()
