"""`cluster.json` in the directory of a local cluster: its plan, its programs, and which processes they are."""

import dataclasses
import json
import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from threefs_client import keyring

from threefs.env.disk import sync_directory
from threefs.errors import AccessDenied, Corrupt, InvalidArgument, NotFound, Unavailable
from threefs_cli import processes
from threefs_cli.processes import Process

NAME = "cluster.json"
UNFINISHED = f"{NAME}.unfinished"
EMBEDDED, ETCD, POSTGRESQL = "embedded", "etcd", "postgresql"
ENGINES = (EMBEDDED, ETCD, POSTGRESQL)
MANAGER, META, STORAGE = "threefs_manager", "threefs_meta", "threefs_storage"
#: The fewest of which any one may be lost.
ETCD_MEMBERS = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """The parts of a local cluster."""

    storage: int = 3  # storage processes
    replicas: int = 3
    min_replicas: int = 0  # copies that a chain must have to accept writes, at first; 0: half, rounded up
    managers: int = 1
    metas: int = 1  # meta services
    engine: str = EMBEDDED  # where managers and meta services keep their data

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise InvalidArgument(f"the engine {self.engine!r} is not one of {', '.join(ENGINES)}")
        if self.engine == EMBEDDED and (self.managers > 1 or self.metas > 1):
            raise InvalidArgument(
                "only one manager and one meta service can use the embedded engine; several share the engine etcd or "
                "postgresql: add `--engine etcd` to the first `threefs up` of a cluster"
            )
        if not 1 <= self.replicas <= self.storage:
            raise InvalidArgument(
                f"{self.replicas} replicas need at least {self.replicas} storage processes, and the plan has "
                f"{self.storage}; give --storage {self.replicas} or --replicas {self.storage}"
            )

    @property
    def targets_per_disk(self) -> int:
        """As many as replicas: then every disk is the head of a chain, in the middle of one, and the tail of one."""
        return self.replicas


@dataclass(frozen=True, slots=True)
class Program:
    """One service, or one process of the engine. It keeps the addresses of its first start."""

    name: str
    module: str  # of Python, or the engine
    addresses: tuple[str, ...] = ()
    process: Process | None = None

    @property
    def runs(self) -> bool:
        return self.process is not None and processes.alive(self.process)

    @property
    def node_id(self) -> int:
        """Of a storage process."""
        return int(self.name.rpartition("-")[2])


@dataclass(frozen=True, slots=True)
class ClusterFile:
    plan: Plan
    programs: tuple[Program, ...]

    @property
    def address(self) -> str:
        """The address for clients; empty before the managers' first start."""
        served = [manager.addresses[0] for manager in self.of(MANAGER) if manager.addresses]
        return f"threefs://{','.join(served)}" if served else ""

    @property
    def engine(self) -> list[Program]:
        """The processes of the engine; none if it is embedded."""
        return self.of(ETCD, POSTGRESQL)

    def of(self, *modules: str) -> list[Program]:
        return [program for program in self.programs if program.module in modules]

    def program(self, name: str) -> Program:
        return next(program for program in self.programs if program.name == name)

    def replace(self, changed: Program) -> "ClusterFile":
        programs = tuple(changed if program.name == changed.name else program for program in self.programs)
        return dataclasses.replace(self, programs=programs)

    def without(self, gone: Collection[Program]) -> "ClusterFile":
        """Storage processes whose nodes have left the cluster are not part of it any more."""
        programs = tuple(program for program in self.programs if program not in gone)
        storage = self.plan.storage - len(gone)
        plan = dataclasses.replace(self.plan, storage=storage, replicas=min(self.plan.replicas, storage))
        return ClusterFile(plan, programs)

    def replanned(self, plan: Plan) -> "ClusterFile":
        """The programs of another plan; those that were launched already keep their process and addresses."""
        before = {program.name: program for program in self.programs}
        others = [before.get(program.name, program) for program in fresh(plan).programs if program.module != STORAGE]
        storage = self.of(STORAGE)[: plan.storage]
        first = max((program.node_id for program in storage), default=0) + 1
        storage += [_storage(number) for number in range(first, first + plan.storage - len(storage))]
        return ClusterFile(plan, (*others, *storage))


def fresh(plan: Plan) -> ClusterFile:
    """The programs of a plan, in the order in which they are started."""
    programs = [Program(name, plan.engine) for name in _engine_names(plan.engine)]
    programs += [Program(_numbered("manager", number), MANAGER) for number in range(1, plan.managers + 1)]
    programs += [Program(_numbered("meta", number), META) for number in range(1, plan.metas + 1)]
    programs += [_storage(number) for number in range(1, plan.storage + 1)]
    return ClusterFile(plan, tuple(programs))


def _storage(node_id: int) -> Program:
    return Program(f"storage-{node_id}", STORAGE)


def _engine_names(engine: str) -> list[str]:
    if engine == EMBEDDED:
        return []
    return [f"etcd-{number}" for number in range(1, ETCD_MEMBERS + 1)] if engine == ETCD else [engine]


def _numbered(role: str, number: int) -> str:
    """The first one has no number: it has had this name since there were clusters of several."""
    return role if number == 1 else f"{role}-{number}"


def load(directory: Path) -> ClusterFile | None:
    """None when there is no cluster. Raises Corrupt, AccessDenied."""
    path = directory / NAME
    try:
        content = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError:
        raise AccessDenied(
            f"the cluster in {directory} is closed to you, because it belongs to another user; use --address and "
            "--key-file to reach it (docs/security.md)"
        ) from None
    try:
        table = json.loads(content)
        return ClusterFile(Plan(**table["plan"]), tuple(_program(row) for row in table["programs"]))
    except (ValueError, TypeError, KeyError) as error:
        raise Corrupt(f"{path} is not the record of a local cluster: {error}") from None


def _program(row: dict[str, Any]) -> Program:
    process = None if row["process"] is None else Process(**row["process"])
    return Program(row["name"], row["module"], tuple(row["addresses"]), process)


def save(directory: Path, cluster: ClusterFile) -> None:
    """Replace the file in one step: a command that is killed, or a power cut, leaves the old one or the new one."""
    content = {"address": cluster.address, **dataclasses.asdict(cluster)}
    unfinished = directory / UNFINISHED
    unfinished.touch(mode=0o600)
    with unfinished.open("w", encoding="utf-8") as out:
        out.write(json.dumps(content, indent=2) + "\n")
        out.flush()
        os.fsync(out.fileno())
    unfinished.replace(directory / NAME)
    sync_directory(directory)


def default_directory() -> Path:
    """The directory of a local cluster when none is named: $THREEFS_DIR, else one below the user's data directory."""
    named = os.environ.get(keyring.CLUSTER_VARIABLE, "")
    return Path(named) if named else keyring.data_home() / "local"


def key_file(directory: Path) -> Path:
    """The key file of the cluster in `directory`, which has a key if the file exists."""
    return directory / keyring.KEY_NAME


def address_in(directory: Path) -> str:
    """The address of the cluster that runs in `directory`. Raises NotFound and Unavailable, saying how to start it."""
    found = load(directory)
    if found is None or not found.address:
        raise NotFound(f"there is no cluster in {directory}; `threefs up --dir {directory}` starts one")
    if not any(manager.runs for manager in found.of(MANAGER)):
        raise Unavailable(f"the cluster in {directory} does not run; `threefs up --dir {directory}` starts it")
    return found.address
