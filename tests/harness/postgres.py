"""A real PostgreSQL server in a directory of its own, of Debian's package. It refuses root, so root becomes nobody."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

import psycopg
import pytest

from tests.harness.processes import free_port

START_S = 60.0
USER = "threefs"


def binary(name: str) -> Path | None:
    """A program of the newest installed version."""
    found = [Path(shutil.which(name) or "/nowhere"), *sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))]
    return next((path for path in reversed(found) if path.exists()), None)


def lacking() -> str:
    """Why no server can be started here; empty when it can."""
    if binary("postgres") is None or binary("initdb") is None:
        return "no PostgreSQL server on this machine: install postgresql"
    return ""


def needs_postgres() -> None:
    if reason := lacking():
        pytest.skip(reason)


class PostgresServer:
    def __init__(self, *, fsync: bool = False, place: Path | None = None) -> None:
        """Without fsync it is quicker; no test cuts the power. `place` is where its directory is made."""
        self._fsync = "on" if fsync else "off"
        self._user = "nobody" if os.geteuid() == 0 else None
        self._directory = Path(tempfile.mkdtemp(prefix="threefs-postgres-", dir=place))
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        if self._user:
            shutil.chown(self._directory, self._user)

    @property
    def url(self) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self._port}/postgres"

    def start(self) -> "PostgresServer":
        data = self._directory / "data"
        if not data.exists():
            self._run(
                "initdb", "--pgdata", str(data), "--username", USER, "--auth", "trust", "--no-sync", "--no-locale"
            )
        options = {"port": self._port, "listen_addresses": "127.0.0.1", "unix_socket_directories": ""}
        options |= {"max_pred_locks_per_transaction": 256, "fsync": self._fsync}
        command = [str(binary("postgres")), "-D", str(data)]
        for name, value in options.items():
            command += ["-c", f"{name}={value}"]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, user=self._user, cwd="/", stdout=log, stderr=log)
        self._wait_ready()
        return self

    def _run(self, name: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(binary(name)), *arguments], user=self._user, cwd="/", capture_output=True, timeout=START_S
        )
        assert done.returncode == 0, done.stderr.decode()

    def _wait_ready(self) -> None:
        for _ in range(int(START_S * 10)):
            try:
                psycopg.connect(self.url).close()
                return
            except psycopg.Error:
                time.sleep(0.1)
        raise AssertionError((self._directory / "log").read_text(errors="replace")[-3000:])

    def schema(self, name: str) -> str:
        """The URL of an empty schema, for a store of one's own."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f'CREATE SCHEMA "{name}"'.encode())
        return f"{self.url}?options=-csearch_path%3D{name}"

    def kill_backend(self) -> bool:
        """kill -9 of a process that serves a connection. The server ends all others too, and recovers."""
        with psycopg.connect(self.url) as connection:
            row = connection.execute(
                "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
                " ORDER BY state_change DESC LIMIT 1"
            ).fetchone()
        if row is not None:
            os.kill(row[0], signal.SIGKILL)
        return row is not None

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(START_S)
        shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> "PostgresServer":
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
