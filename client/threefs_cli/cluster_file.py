"""`cluster.json` in the directory of a local cluster: its plan, its programs, and which processes they are."""

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from threefs_client import keyring

from threefs.errors import AccessDenied, Corrupt, InvalidArgument, NotFound, Unavailable
from threefs_cli import processes
from threefs_cli.processes import Process

NAME = "cluster.json"


@dataclass(frozen=True, slots=True)
class Plan:
    """The parts of a local cluster. Only storage processes are added later."""

    storage: int = 3  # storage processes
    replicas: int = 3
    min_replicas: int = 0  # copies that a chain must have to accept writes, at first; 0: half, rounded up

    def __post_init__(self) -> None:
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
    """One service. It keeps the addresses of its first start."""

    name: str
    module: str
    addresses: tuple[str, ...] = ()
    process: Process | None = None

    @property
    def runs(self) -> bool:
        return self.process is not None and processes.alive(self.process)


@dataclass(frozen=True, slots=True)
class ClusterFile:
    plan: Plan
    programs: tuple[Program, ...]

    @property
    def address(self) -> str:
        """The address for clients; empty before the manager's first start."""
        manager = self.program("manager")
        return f"threefs://{manager.addresses[0]}" if manager.addresses else ""

    def program(self, name: str) -> Program:
        return next(program for program in self.programs if program.name == name)

    def replace(self, changed: Program) -> "ClusterFile":
        programs = tuple(changed if program.name == changed.name else program for program in self.programs)
        return dataclasses.replace(self, programs=programs)


def fresh(plan: Plan) -> ClusterFile:
    storage = (Program(f"storage-{number}", "threefs_storage") for number in range(1, plan.storage + 1))
    return ClusterFile(plan, (Program("manager", "threefs_manager"), Program("meta", "threefs_meta"), *storage))


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
    """Replace the file in one step: a command that is killed leaves the old one."""
    content = {"address": cluster.address, **dataclasses.asdict(cluster)}
    unfinished = directory / f"{NAME}.unfinished"
    unfinished.touch(mode=0o600)
    unfinished.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    unfinished.replace(directory / NAME)


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
    if not found.program("manager").runs:
        raise Unavailable(f"the cluster in {directory} does not run; `threefs up --dir {directory}` starts it")
    return found.address
