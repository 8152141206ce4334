"""Real service processes for tests."""

import os
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


_PORTS: set[int] = set()  # that this process was given: the kernel may name one again while nobody listens there


def free_port() -> int:
    """For those who must know a port before anybody serves there. No port is given twice."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port not in _PORTS:
            _PORTS.add(port)
            return port


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
