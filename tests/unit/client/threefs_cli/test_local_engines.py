import dataclasses
import os
import stat
from pathlib import Path

import pytest
from threefs_cli import cluster_file, local_engines
from threefs_cli.cluster_file import ClusterFile, Plan
from threefs_cli.local_engines import LocalEtcd, LocalPostgres

from tests.harness.other_user import needs_root
from threefs.errors import NotFound, StrangeStore, Unavailable
from threefs.kv import engine_url


def cluster(engine: str) -> ClusterFile:
    state = cluster_file.fresh(Plan(managers=3, metas=2, engine=engine))
    for number, program in enumerate(state.engine):
        state = state.replace(dataclasses.replace(program, addresses=(f"127.0.0.1:{5000 + number}",)))
    return state


def test_the_password_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    password = LocalEtcd(tmp_path).password()
    assert len(password) == 32 and LocalEtcd(tmp_path).password() == password
    assert [stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()] == [0o600]


@pytest.mark.parametrize("kind", ["etcd", "postgresql"])
def test_each_kind_of_service_has_a_store_of_its_own(tmp_path: Path, kind: str) -> None:
    state = cluster(kind)
    engine = local_engines.of(tmp_path, state)
    assert engine is not None
    urls = [engine_url.parse(engine.url(state, store)) for store in ("manager", "meta")]
    assert urls[0].full != urls[1].full and all(url.shared for url in urls)
    assert all(engine.password() in url.full and engine.password() not in url.shown for url in urls)


def test_the_embedded_engine_has_no_processes(tmp_path: Path) -> None:
    assert local_engines.of(tmp_path, cluster_file.fresh(Plan())) is None


def test_members_of_etcd_find_each_other_by_sockets_that_nobody_else_can_reach(tmp_path: Path) -> None:
    engine, state = LocalEtcd(tmp_path), cluster("etcd")
    engine.prepare(state.engine[0], new=True)
    assert [stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()] == [0o700]
    command = engine.command(state, state.engine[0], new=True)
    assert str(tmp_path / "sockets") in command and "--initial-cluster-state=new" in command
    assert "--initial-cluster=etcd-1=unix://etcd-1:0,etcd-2=unix://etcd-2:0,etcd-3=unix://etcd-3:0" in command
    assert all(engine.password() not in part for part in command)
    assert "--initial-cluster-state=existing" in engine.command(state, state.engine[0], new=False)


def test_how_many_processes_of_an_engine_can_be_missed(tmp_path: Path) -> None:
    members, (server,) = cluster("etcd").engine, cluster("postgresql").engine
    assert LocalEtcd(tmp_path).may_lack(members[:1]) and not LocalEtcd(tmp_path).may_lack(members[:2])
    assert LocalPostgres(tmp_path).may_lack([]) and not LocalPostgres(tmp_path).may_lack([server])


def test_an_engine_that_has_lost_its_data_is_not_made_anew(tmp_path: Path) -> None:
    """Two empty members of etcd would be the majority, and the third one would forget everything."""
    with pytest.raises(StrangeStore, match=r"etcd-1 has lost its data.*`etcdctl member remove`"):
        LocalEtcd(tmp_path).prepare(cluster("etcd").engine[0], new=False)
    (tmp_path / "postgresql").mkdir()
    with pytest.raises(StrangeStore, match="postgresql has lost its data"):
        LocalPostgres(tmp_path).prepare(cluster("postgresql").engine[0], new=False)


def test_a_missing_program_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotFound, match="the program etcd is not installed: apt-get install etcd-server"):
        LocalEtcd(tmp_path).check()


def test_a_server_whose_predecessor_has_not_ended_quite_is_started_again(tmp_path: Path) -> None:
    log = "FATAL:  pre-existing shared memory block (key 1, ID 2) is still in use"
    assert LocalPostgres(tmp_path).retries(log)
    assert not LocalPostgres(tmp_path).retries("FATAL:  could not bind") and not LocalEtcd(tmp_path).retries(log)


def test_postgresql_never_runs_as_root() -> None:
    user = local_engines.server_user()
    assert (user is None) == (os.geteuid() != 0)
    assert user is None or user.pw_uid != 0


@needs_root
@pytest.mark.parametrize("new", [True, False])
def test_the_user_of_postgresql_can_put_no_link_where_root_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new: bool
) -> None:
    """The server's directory was that user's, and root opened files in it: a link made it write to any file."""
    user = local_engines.server_user()
    assert user is not None
    home, victim, directory = (tmp_path / name for name in ("postgresql", "victim", "directory"))
    home.mkdir()
    directory.mkdir()
    if new:
        (home / "data").symlink_to(directory)
    else:
        (home / "data").mkdir()
    victim.write_text("of root")
    (home / "ready").symlink_to(victim)
    (home / "log").hardlink_to(victim)
    (home / "initdb_password").symlink_to(victim)
    for path in (home, home / "data"):
        os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)
    monkeypatch.setattr(local_engines, "_binary", lambda name, package: Path("/bin/false"))
    with pytest.raises(Unavailable if new else StrangeStore):
        LocalPostgres(tmp_path).prepare(cluster("postgresql").engine[0], new=new)
    assert victim.read_text() == "of root" and victim.stat().st_uid == directory.stat().st_uid == 0
    assert [path.name for path in home.iterdir()] == ["data"] and (home / "data").lstat().st_uid == user.pw_uid
    found = home.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (0, user.pw_gid, 0o710)


@needs_root
def test_the_log_of_postgresql_stays_over_a_start(tmp_path: Path) -> None:
    home = tmp_path / "postgresql"
    (home / "data").mkdir(parents=True)
    (home / "data" / "PG_VERSION").touch()
    (home / "log").write_text("it began")
    LocalPostgres(tmp_path).prepare(cluster("postgresql").engine[0], new=False)
    assert (home / "log").read_text() == "it began"
