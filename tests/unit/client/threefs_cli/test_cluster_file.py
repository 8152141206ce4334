import dataclasses
import json
import os
from pathlib import Path

import pytest
from threefs_cli import cluster_file, processes
from threefs_cli.cluster_file import Plan
from threefs_cli.processes import Process
from threefs_client import keyring

from threefs.errors import AccessDenied, Corrupt, InvalidArgument, NotFound, Unavailable


def test_it_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    fresh = cluster_file.fresh(Plan(storage=2, replicas=1))
    assert [program.name for program in fresh.programs] == ["manager", "meta", "storage-1", "storage-2"]
    manager = dataclasses.replace(fresh.program("manager"), addresses=("h:1", "h:2"), process=Process(7, 8))
    state = fresh.replace(manager)
    cluster_file.save(tmp_path, state)
    assert cluster_file.load(tmp_path) == state
    assert [path.name for path in tmp_path.iterdir()] == [cluster_file.NAME]


def test_it_is_durable_before_it_has_its_name_and_the_name_is_durable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A power cut soon after the first `up` left an empty file, which every later one refused."""
    synced: list[tuple[Path, list[str]]] = []  # with the names that the directory had then
    real = os.fsync

    def fsync(descriptor: int) -> None:
        real(descriptor)
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        assert path.is_dir() or path.read_text().endswith("}\n"), "all of it was handed over before"
        synced.append((path, [each.name for each in tmp_path.iterdir()]))

    monkeypatch.setattr(os, "fsync", fsync)
    cluster_file.save(tmp_path, cluster_file.fresh(Plan()))
    unfinished = cluster_file.UNFINISHED
    assert synced == [(tmp_path / unfinished, [unfinished]), (tmp_path, [cluster_file.NAME])]


def test_several_services_and_their_engine(tmp_path: Path) -> None:
    state = cluster_file.fresh(Plan(storage=1, replicas=1, managers=3, metas=2, engine="etcd"))
    names = [program.name for program in state.programs]
    engine = ["etcd-1", "etcd-2", "etcd-3"]
    assert names == [*engine, "manager", "manager-2", "manager-3", "meta", "meta-2", "storage-1"]
    assert [program.name for program in state.engine] == engine
    for number, name in enumerate(("manager", "manager-2", "manager-3")):
        state = state.replace(dataclasses.replace(state.program(name), addresses=(f"h:{number}", "c:1")))
    assert state.address == "threefs://h:0,h:1,h:2"
    cluster_file.save(tmp_path, state)
    assert cluster_file.load(tmp_path) == state
    assert [p.name for p in cluster_file.fresh(Plan(engine="postgresql")).engine] == ["postgresql"]


def test_a_record_of_before_there_were_engines(tmp_path: Path) -> None:
    plan = {"storage": 1, "replicas": 1, "min_replicas": 0}
    (tmp_path / cluster_file.NAME).write_text(json.dumps({"plan": plan, "programs": []}))
    found = cluster_file.load(tmp_path)
    assert found is not None and found.plan == Plan(1, 1, managers=1, metas=1, engine="embedded")


@pytest.mark.parametrize("several", [{"managers": 2}, {"metas": 2}])
def test_the_embedded_engine_has_one_user_of_each_kind(several: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument, match="several share the engine etcd or postgresql: add `--engine etcd`"):
        Plan(**several)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="the engine 'mysql' is not one of embedded, etcd, postgresql"):
        Plan(engine="mysql")


def test_the_cluster_of_another_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def closed(path: Path, encoding: str) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_text", closed)
    with pytest.raises(AccessDenied, match=f"the cluster in {tmp_path} is closed to you.*--address and --key-file"):
        cluster_file.load(tmp_path)


def test_nothing_there_is_none(tmp_path: Path) -> None:
    assert cluster_file.load(tmp_path) is None
    assert cluster_file.load(tmp_path / "nowhere") is None


@pytest.mark.parametrize("content", ["", "[]", '{"plan": {}}', '{"plan": {"disks": 3}, "programs": []}'])
def test_anything_else_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / cluster_file.NAME).write_text(content)
    with pytest.raises(Corrupt, match=r"cluster\.json"):
        cluster_file.load(tmp_path)


@pytest.mark.parametrize(("storage", "replicas"), [(3, 4), (0, 0), (2, 0)])
def test_a_plan_that_cannot_be(storage: int, replicas: int) -> None:
    with pytest.raises(InvalidArgument):
        Plan(storage, replicas)


def test_the_address_is_that_of_the_manager(tmp_path: Path) -> None:
    state = cluster_file.fresh(Plan())
    cluster_file.save(tmp_path, state)
    with pytest.raises(NotFound, match="threefs up --dir"):
        cluster_file.address_in(tmp_path)  # it was never started
    manager = dataclasses.replace(state.program("manager"), addresses=("h:1", "h:2"))
    cluster_file.save(tmp_path, state.replace(manager))
    with pytest.raises(Unavailable, match="does not run; `threefs up --dir"):
        cluster_file.address_in(tmp_path)
    myself = processes.of(os.getpid())
    cluster_file.save(tmp_path, state.replace(dataclasses.replace(manager, process=myself)))
    assert cluster_file.address_in(tmp_path) == "threefs://h:1"


def test_the_default_directory_follows_the_convention(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(keyring.DATA_VARIABLE, str(tmp_path))
    assert cluster_file.default_directory() == tmp_path / "threefs" / "local"
    monkeypatch.delenv(keyring.DATA_VARIABLE)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cluster_file.default_directory() == tmp_path / ".local" / "share" / "threefs" / "local"
