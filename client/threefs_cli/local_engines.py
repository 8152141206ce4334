"""The engine of a local cluster that is not the embedded one: etcd or PostgreSQL, run from the cluster's directory.

    DIRECTORY/engine_password              of the engine, for managers and meta services
    DIRECTORY/etcd-1/data, log, ...        three members; their connections are UNIX sockets in DIRECTORY/sockets
    DIRECTORY/postgresql/data, log         one server; if it has a user of its own, only data is that user's

Clients of the engine reach it at 127.0.0.1 with the password. Nobody else on this machine can use it.
"""

import contextlib
import dataclasses
import os
import pwd
import shutil
import stat
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from threefs.env import machine
from threefs.env.random import RANDOM
from threefs.errors import InvalidSettings, NotFound, PermissionDenied, StrangeStore, Unavailable
from threefs.kv import engine_url, etcd_login
from threefs.kv.etcd_members import MAX_OPERATIONS
from threefs_cli import processes
from threefs_cli.cluster_file import EMBEDDED, ETCD, ETCD_MEMBERS, MANAGER, META, ClusterFile, Program

HOST = "127.0.0.1"
_PASSWORD_NAME = "engine_password"
_SOCKETS = "sockets"
_ETCD_BYTES = 8 << 30  # the most that etcd supports
_DATABASE_USER = "threefs"
_CONNECTIONS_PER_SERVICE = 24  # threefs.kv.postgres_connections.MAX_CONNECTIONS; that module needs the driver
_MIN_CONNECTIONS = 200  # room for services that are added while the server runs
_INITDB_S = 120.0
_SECRET_NAME = "initdb_password"
_READY_NAME, _LOG_NAME = "ready", "log"


class LocalEngine(ABC):
    """How the processes of one kind of engine are started. The cluster in `directory` has the plan of `state`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @abstractmethod
    def check(self) -> None:
        """Raises NotFound, which names the package, if the engine is not installed; PermissionDenied."""

    @abstractmethod
    def prepare(self, program: Program, *, new: bool) -> None:
        """Before the start of a process. `new`: the cluster has no data yet. Raises StrangeStore if data is lost."""

    @abstractmethod
    def command(self, state: ClusterFile, program: Program, *, new: bool) -> list[str]:
        """The command of a process whose address is known."""

    @abstractmethod
    def url(self, state: ClusterFile, store: str, program: Program | None = None) -> str:
        """Where the services of one kind keep their data; how one process of the engine answers for it."""

    @abstractmethod
    def may_lack(self, programs: Sequence[Program]) -> bool:
        """Whether the engine serves without these processes, which do not run."""

    @abstractmethod
    async def make_stores(self, state: ClusterFile, stores: Sequence[str], timeout_s: float) -> None:
        """Once it runs: close it to others, and make the stores. Harmless a second time. Raises Unavailable."""

    def retries(self, log: str) -> bool:
        """Whether a process that has ended with this log may start when it is started again."""
        return False

    def address(self) -> str:
        """An address for a process at its first start."""
        return f"{HOST}:{machine.free_port(HOST)}"

    def password(self) -> str:
        """The password of the engine, made when it is first wanted."""
        path = self._directory / _PASSWORD_NAME
        if not path.exists():
            unfinished = path.with_suffix(".unfinished")
            unfinished.touch(mode=0o600)
            unfinished.write_text(RANDOM.token(16).hex() + "\n", encoding="ascii")
            unfinished.replace(path)
        return path.read_text(encoding="ascii").strip()


def of(directory: Path, state: ClusterFile) -> LocalEngine | None:
    """None for the embedded engine."""
    if state.plan.engine == EMBEDDED:
        return None
    return LocalEtcd(directory) if state.plan.engine == ETCD else LocalPostgres(directory)


class LocalEtcd(LocalEngine):
    def check(self) -> None:
        _binary("etcd", "etcd-server")

    def prepare(self, program: Program, *, new: bool) -> None:
        sockets = self._directory / _SOCKETS
        sockets.mkdir(exist_ok=True, mode=0o700)
        for left in sockets.glob(f"{program.name}:*"):
            left.unlink()
        if not new and not (self._directory / program.name / "data" / "member").exists():
            raise StrangeStore(
                f"{program.name} has lost its data, and would be a new member: `etcdctl member remove` and `etcdctl "
                f"member add` replace it while the others run (the user is {etcd_login.ROOT}, its password is in "
                f"{self._directory / _PASSWORD_NAME})"
            )

    def command(self, state: ClusterFile, program: Program, *, new: bool) -> list[str]:
        members = ",".join(f"{member.name}={_peer_url(member)}" for member in state.engine)
        client = f"http://{program.addresses[0]}"
        options = {
            "name": program.name,
            "data-dir": self._directory / program.name / "data",
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": _peer_url(program),
            "initial-advertise-peer-urls": _peer_url(program),
            "initial-cluster": members,
            "initial-cluster-state": "new" if new else "existing",
            "max-txn-ops": MAX_OPERATIONS,
            "bcrypt-cost": 4,  # the password is random: there is nothing to guess
            "quota-backend-bytes": _ETCD_BYTES,
            "auto-compaction-mode": "periodic",
            "auto-compaction-retention": "5m",
            "logger": "zap",
            "log-outputs": "stderr",
        }
        binary = _binary("etcd", "etcd-server")
        arguments = [f"--{name}={value}" for name, value in options.items()]
        return _private([str(binary), *arguments], self._directory / _SOCKETS)

    def url(self, state: ClusterFile, store: str, program: Program | None = None) -> str:
        members = ",".join(member.addresses[0] for member in (state.engine if program is None else [program]))
        return f"etcd://{etcd_login.ROOT}:{self.password()}@{members}/{store}"

    def may_lack(self, programs: Sequence[Program]) -> bool:
        return len(programs) <= (ETCD_MEMBERS - 1) // 2

    async def make_stores(self, state: ClusterFile, stores: Sequence[str], timeout_s: float) -> None:
        running = [member for member in state.engine if member.runs]
        await etcd_login.require_login(running[0].addresses[0], self.password(), timeout_s)


class LocalPostgres(LocalEngine):
    def check(self) -> None:
        _binary("postgres", "postgresql")
        _binary("initdb", "postgresql")
        try:
            import psycopg  # noqa: F401
        except ImportError:
            raise InvalidSettings(
                "the engine postgresql needs the extra 'postgres': pip install 'threefs[postgres]'"
            ) from None
        if (user := server_user()) is not None:
            self._let_pass(user)

    def _let_pass(self, user: pwd.struct_passwd) -> None:
        """Let the user of the server pass through the directory of the cluster, without reading it.

        Raises PermissionDenied if the user cannot even come there.
        """
        os.chown(self._directory, -1, user.pw_gid)
        self._directory.chmod(stat.S_IMODE(self._directory.stat().st_mode) | stat.S_IXGRP)
        for parent in self._directory.parents:
            if not _may_pass(parent.stat(), user):
                raise PermissionDenied(
                    f"PostgreSQL does not run as root, and its user {user.pw_name} cannot pass through {parent}; name "
                    "a directory elsewhere, for example --dir /var/lib/threefs, or run `threefs up` as another user"
                )

    def prepare(self, program: Program, *, new: bool) -> None:
        home = self._directory / program.name
        user = server_user()
        if user is not None:
            _keep(home, user)
        data = home / "data"
        if (data / "PG_VERSION").exists():
            return
        if not new:
            raise StrangeStore(
                f"{program.name} has lost its data: there is none in {data}, but data of its cluster is there. Mount "
                "its disk, or restore a backup of PostgreSQL"
            )
        shutil.rmtree(data, ignore_errors=True)  # of a start that was interrupted
        data.mkdir(exist_ok=True, mode=0o700)  # a disk of its own stays
        secret = home / _SECRET_NAME
        secret.touch(mode=0o600)
        secret.write_text(self.password() + "\n", encoding="ascii")
        if user is not None:
            for path in (data, secret):
                os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)
        arguments = ["--pgdata", str(data), "--username", _DATABASE_USER, "--pwfile", str(secret), "--no-locale"]
        arguments += ["--auth", "scram-sha-256", "--encoding", "UTF8"]
        command = _private([*_as(user), str(_binary("initdb", "postgresql")), *arguments], Path("/"))
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INITDB_S, check=False)
        secret.unlink()
        if done.returncode != 0:
            raise Unavailable(f"initdb of PostgreSQL failed in {data}: {done.stderr.strip()[-500:]}")

    def command(self, state: ClusterFile, program: Program, *, new: bool) -> list[str]:
        host, _, port = program.addresses[0].rpartition(":")
        services = len(state.of(MANAGER, META))
        options = {
            "listen_addresses": host,
            "port": port,
            "unix_socket_directories": "",
            "max_connections": max(_MIN_CONNECTIONS, _CONNECTIONS_PER_SERVICE * services + 20),
            "max_pred_locks_per_transaction": 256,
        }
        arguments = ["-D", str(self._directory / program.name / "data")]
        for name, value in options.items():
            arguments += ["-c", f"{name}={value}"]
        return _private([*_as(server_user()), str(_binary("postgres", "postgresql")), *arguments], Path("/"))

    def url(self, state: ClusterFile, store: str, program: Program | None = None) -> str:
        return f"{self._database(state)}?options=-csearch_path%3D{store}"

    def _database(self, state: ClusterFile) -> str:
        return f"postgresql://{_DATABASE_USER}:{self.password()}@{state.engine[0].addresses[0]}/postgres"

    def may_lack(self, programs: Sequence[Program]) -> bool:
        return not programs

    async def make_stores(self, state: ClusterFile, stores: Sequence[str], timeout_s: float) -> None:
        from psycopg import AsyncConnection, Error, sql

        try:
            async with await AsyncConnection.connect(self._database(state), autocommit=True) as connection:
                for store in stores:
                    make = sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(store))
                    await connection.execute(make)
        except Error as error:
            raise Unavailable(f"PostgreSQL does not answer: {str(error).strip()}") from None

    def retries(self, log: str) -> bool:
        """After SIGKILL the children of the old server end a moment later, and a new one does not start before."""
        return "shared memory block" in log


async def answers(url: str) -> None:
    """Open a store and close it again. Raises Unavailable and others of `engine_url.open_engine`."""
    store = await engine_url.open_engine(engine_url.parse(url))
    await store.close()


def launch(engine: LocalEngine, state: ClusterFile, program: Program, home: Path, *, new: bool) -> Program:
    """Start a process of the engine. Raises StrangeStore, Unavailable."""
    if not program.addresses:
        program = dataclasses.replace(program, addresses=(engine.address(),))
        state = state.replace(program)
    engine.prepare(program, new=new)
    process = processes.start(
        engine.command(state, program, new=new),
        output=home / _READY_NAME,
        log=home / _LOG_NAME,
        environment=processes.child_environment(),
    )
    return dataclasses.replace(program, process=process)


def server_user() -> pwd.struct_passwd | None:
    """The user that a server of PostgreSQL becomes, because it refuses to run as root. None: whoever runs this."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise NotFound("PostgreSQL does not run as root, and there is no user postgres: apt-get install postgresql")


def _peer_url(member: Program) -> str:
    """etcd takes such an address as the name of a UNIX socket in its working directory."""
    return f"unix://{member.name}:0"


def _binary(name: str, package: str) -> Path:
    """A program of the newest installed version. Debian keeps those of PostgreSQL out of the search path."""
    found = [
        shutil.which(name) or "",
        *map(str, sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=_version)),
    ]
    existing = [Path(path) for path in found if path and Path(path).exists()]
    if not existing:
        raise NotFound(f"the program {name} is not installed: apt-get install {package}")
    return existing[-1]


def _version(path: Path) -> int:
    version = path.parent.parent.name
    return int(version) if version.isdecimal() else 0


def _private(command: Sequence[str], directory: Path) -> list[str]:
    """The command in a working directory, with files that only its user can use."""
    return ["/bin/sh", "-c", 'umask 077 && cd "$0" && exec "$@"', str(directory), *command]


def _as(user: pwd.struct_passwd | None) -> list[str]:
    """The beginning of a command that runs as another user."""
    if user is None:
        return []
    setpriv = _binary("setpriv", "util-linux")
    return [str(setpriv), f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--"]


def _keep(home: Path, user: pwd.struct_passwd) -> None:
    """Let the user of the server pass through its directory, and only us write there: what we open in it could be a
    link of that user to any file. Where an earlier version gave it to that user, what may be such a link is removed."""
    os.chown(home, os.geteuid(), user.pw_gid)
    home.chmod(0o710)
    for path in (home / name for name in (_READY_NAME, _LOG_NAME, _SECRET_NAME)):
        with contextlib.suppress(FileNotFoundError):
            found = path.lstat()
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink > 1:
                path.unlink()


def _may_pass(found: os.stat_result, user: pwd.struct_passwd) -> bool:
    if found.st_uid == user.pw_uid:
        return bool(found.st_mode & stat.S_IXUSR)
    if found.st_gid == user.pw_gid:
        return bool(found.st_mode & stat.S_IXGRP)
    return bool(found.st_mode & stat.S_IXOTH)
