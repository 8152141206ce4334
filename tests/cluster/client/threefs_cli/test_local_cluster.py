import asyncio
import dataclasses
import pickle
import shutil
import stat
import subprocess
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import threefs_client
from threefs_cli import cluster_file, local_cluster, processes
from threefs_cli.cluster_file import ETCD, ClusterFile, Plan
from threefs_cli.local_cluster import LocalCluster
from threefs_client import keyring
from threefs_client.keyring import TOKEN_VARIABLE

from tests.harness.rpc import identity
from tests.harness.trace_collector import TraceCollector
from threefs.cluster.manager_client import ManagerClient
from threefs.env.disk import LEAVING
from threefs.env.net import RealNet
from threefs.errors import (
    AlreadyExists,
    ConnectionLost,
    Fenced,
    InvalidArgument,
    InvalidSettings,
    NotADirectory,
    NotAuthorised,
    NotPrimary,
    Stopping,
    ThreefsError,
    Unavailable,
)
from threefs.kv import engine_url
from threefs.kv.restore_mark import write_mark
from threefs.rpc.methods import GET_STATUS
from threefs.rpc.server import Server
from threefs.wire import manager_pb2 as pb

SMALL = Plan(storage=1, replicas=1)


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalCluster]:
    initialized = LocalCluster(tmp_path / "cluster")
    yield initialized
    asyncio.run(initialized.down())
    assert not initialized.running()


def names(cluster: LocalCluster) -> set[str]:
    return {program.name for program in cluster.running()}


def test_it_keeps_data_and_addresses_over_a_restart(local: LocalCluster) -> None:
    told: list[str] = []
    first = asyncio.run(local.up(SMALL, progress=told.append))
    assert [line.split()[0] for line in told] == ["manager", "meta", "storage-1"]
    with threefs_client.connect(first.address) as fs:
        fs.write_file("/kept", b"content")
    assert set(asyncio.run(local.down())) == {"manager", "meta", "storage-1"}
    assert names(local) == set()
    second = asyncio.run(local.up())
    assert [program.addresses for program in second.programs] == [program.addresses for program in first.programs]
    with threefs_client.connect(second.address) as fs:
        assert fs.read_file("/kept") == b"content"


@pytest.mark.parametrize("failure", [NotPrimary(), Fenced(), ConnectionLost(), Stopping()])
def test_of_managers_that_share_a_store_the_next_primary_is_waited_for(
    failure: ThreefsError, local: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`threefs up` stopped again all that it had started."""

    class Managers:
        async def call(self, method: Any, request: Any, *, timeout_s: float) -> Any:
            if failures:
                raise failures.pop()
            return pb.GetStatusReply(manager_epoch=7)

    failures = [failure]
    monkeypatch.setattr(ManagerClient, "over_frames", lambda *_: Managers())
    state = ClusterFile(Plan(engine=ETCD, storage=1, replicas=1), ())
    assert asyncio.run(local._call_manager(state, GET_STATUS, pb.GetStatusRequest())).manager_epoch == 7


def test_a_file_is_no_place_for_a_cluster(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in ("file", "file/below"):
        with pytest.raises(NotADirectory, match=f"{tmp_path}/file is a file; name a directory"):
            asyncio.run(LocalCluster(tmp_path / place).up(SMALL))
        with pytest.raises(NotADirectory, match=f"{tmp_path}/file is a file; name a directory"):
            LocalCluster(tmp_path / place).planned(SMALL)


def test_up_starts_only_what_is_missing(local: LocalCluster) -> None:
    first = asyncio.run(local.up(SMALL))
    assert asyncio.run(local.up()) == first
    asyncio.run(local.kill("storage-1"))
    assert names(local) == {"manager", "meta"}
    again = asyncio.run(local.up(SMALL))
    assert names(local) == {"manager", "meta", "storage-1"}
    assert again.program("meta").process == first.program("meta").process
    assert again.program("storage-1").process != first.program("storage-1").process
    with pytest.raises(InvalidArgument, match="`threefs table set-replicas 1 COPIES` changes the copies"):
        asyncio.run(local.up(Plan(storage=2, replicas=2)))
    asyncio.run(local.up(Plan(storage=2, replicas=1)))
    assert names(local) == {"manager", "meta", "storage-1", "storage-2"}
    with pytest.raises(InvalidArgument, match="`threefs node drain` empties one"):
        asyncio.run(local.up(SMALL))


def test_a_stopped_cluster_that_grows_starts_what_it_knows_first(
    local: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manager waits for the storage processes it knows before it takes a new one: it waited for T."""
    add = local._add_nodes

    async def watched(state: cluster_file.ClusterFile) -> None:
        told.append("nodes are added")
        await add(state)

    told: list[str] = []
    asyncio.run(local.up(SMALL))
    asyncio.run(local.down())
    monkeypatch.setattr(local, "_add_nodes", watched)
    asyncio.run(local.up(Plan(storage=2, replicas=1), progress=told.append))
    serving, joining = (line for line in told if line.startswith("storage-"))
    assert told.index(serving) < told.index("nodes are added") < told.index(joining)


def test_a_first_start_that_was_cut_short_after_the_plan_was_made_starts_all_of_the_plan_first(
    local: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manager waits for storage processes that have never served as well: the meta service waited for T."""
    init, add = local._init, local._add_nodes

    async def cut_short(state: cluster_file.ClusterFile) -> None:
        await init(state)
        raise KeyboardInterrupt

    async def watched(state: cluster_file.ClusterFile) -> None:
        told.append("nodes are added")
        await add(state)

    told: list[str] = []
    monkeypatch.setattr(local, "_init", cut_short)
    monkeypatch.setattr(local, "_add_nodes", watched)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(local.up(SMALL))
    asyncio.run(local.up(Plan(storage=2, replicas=1), progress=told.append))
    serving, joining = (line for line in told if line.startswith("storage-"))
    assert serving.startswith("storage-1")
    assert told.index(serving) < told.index("nodes are added") < told.index(joining)


def test_a_program_of_an_up_that_was_killed_is_waited_for(tmp_path: Path) -> None:
    """It runs, and no later `up` asked for its address: each one failed."""
    local, state = LocalCluster(tmp_path), cluster_file.fresh(SMALL)
    with subprocess.Popen(["sleep", "100"]) as launched:
        try:
            manager = dataclasses.replace(state.program("manager"), process=processes.of(launched.pid))
            state = state.replace(manager)
            (tmp_path / "manager").mkdir()
            (tmp_path / "manager" / "ready").write_text("ready h:1 h:2\n")
            state = asyncio.run(local._start(state, [manager], 0, print, [], new=True))
            served = dataclasses.replace(manager, addresses=("h:1", "h:2"))
            assert state.program("manager") == served, "it was not launched again"
            assert cluster_file.load(tmp_path) == state and state.address == "threefs://h:1"
            told: list[str] = []
            assert asyncio.run(local._start(state, [served], 0, told.append, [], new=True)) == state and not told
        finally:
            launched.kill()


def test_what_is_left_of_a_removed_store_makes_no_node_of_the_cluster(tmp_path: Path) -> None:
    """Each start failed with the storage process that had left, because its disk had failed in the removal."""
    local, state = LocalCluster(tmp_path), cluster_file.fresh(Plan(storage=2, replicas=1))
    state = state.replace(dataclasses.replace(state.program("storage-2"), addresses=("h:1",)))
    status = pb.GetStatusReply(cluster_id="c" * 32)
    whole = tmp_path / "storage-2" / "data" / "target-201"
    whole.mkdir(parents=True)
    assert local._without_removed(state, status, print) == state
    whole.rename(whole.with_name(f"{whole.name}{LEAVING}"))
    left = local._without_removed(state, status, print).of(cluster_file.STORAGE)
    assert [program.name for program in left] == ["storage-1"]


def test_watch_tells_what_has_ended(local: LocalCluster) -> None:
    told: list[str] = []

    async def work() -> None:
        await local.up(SMALL)
        watch = asyncio.create_task(local.watch(told.append, lambda: bool(told)))
        await asyncio.sleep(0)  # it has looked once
        await local.kill("meta")
        await watch

    asyncio.run(work())
    assert len(told) == 1 and told[0].startswith("meta has ended")


def test_watch_ends_with_the_last_program(local: LocalCluster) -> None:
    told: list[str] = []

    async def work() -> None:
        await local.up(SMALL)
        watch = asyncio.create_task(local.watch(told.append, lambda: False))
        await asyncio.sleep(0)
        await local.down()
        await watch

    asyncio.run(work())
    assert {line.split()[0] for line in told} == {"manager", "meta", "storage-1"}


def open_to_others(directory: Path) -> list[str]:
    """Everything below that another user could read or write if it could get there."""
    entries = [directory, *directory.rglob("*")]
    return [f"{stat.filemode(entry.stat().st_mode)} {entry}" for entry in entries if entry.stat().st_mode & 0o077]


def test_a_cluster_has_a_key_that_its_user_needs_not_name(local: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    address = asyncio.run(local.up(SMALL)).address
    with threefs_client.connect(address) as fs:
        fs.write_file("/a", b"a")
    assert open_to_others(local.directory) == []
    monkeypatch.setenv(keyring.DATA_VARIABLE, "/nowhere")
    with pytest.raises(NotAuthorised, match="--key-file or"):
        threefs_client.connect(address, connect_timeout_s=30.0)
    with threefs_client.connect(address, key_file=str(local.key_file)) as fs:
        assert fs.read_file("/a") == b"a"
    monkeypatch.setenv(keyring.FILE_VARIABLE, str(local.key_file))
    with pickle.loads(pickle.dumps(threefs_client.connect(address))) as fs:  # noqa: S301
        assert fs.read_file("/a") == b"a"
    monkeypatch.setenv(TOKEN_VARIABLE, "0123456789abcdef")
    with pytest.raises(NotAuthorised, match=rf"different keys.*\${TOKEN_VARIABLE}"):
        threefs_client.connect(address, connect_timeout_s=30.0)


def test_a_chosen_key_stays_when_later_commands_do_not_name_it(
    local: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "short")
    with pytest.raises(InvalidSettings, match="at least 16 characters"):
        asyncio.run(local.up(SMALL))
    monkeypatch.setenv(TOKEN_VARIABLE, "a secret of some length")
    address = asyncio.run(local.up(SMALL)).address
    assert "secret" not in (local.directory / cluster_file.NAME).read_text()
    asyncio.run(local.down())
    monkeypatch.setenv(TOKEN_VARIABLE, "another secret of some length")
    with pytest.raises(InvalidArgument, match="is not the key"):
        asyncio.run(local.up())
    monkeypatch.delenv(TOKEN_VARIABLE)
    asyncio.run(local.up())
    monkeypatch.setenv(keyring.DATA_VARIABLE, "/nowhere")
    with pytest.raises(NotAuthorised):
        threefs_client.connect(address, connect_timeout_s=30.0)
    with threefs_client.connect(address, token="a secret of some length") as fs:
        fs.write_file("/a", b"a")


def test_a_cluster_of_before_keeps_its_token_as_its_key(local: LocalCluster) -> None:
    (local.directory / "manager").mkdir(parents=True, mode=0o755)
    cluster_file.save(local.directory, cluster_file.fresh(SMALL))
    (local.directory / "manager" / "settings.toml").write_text('token = "a secret of some length"\n')
    local.directory.chmod(0o755)
    (local.directory / "meta" / "data").mkdir(parents=True, mode=0o755)
    asyncio.run(local.up())
    assert local.key_file.read_text() == "a secret of some length\n"
    found = [local.directory / "meta" / "data", local.directory / "manager" / "data"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in found] == [0o700, 0o700]
    assert not local.directory.stat().st_mode & 0o007


def test_its_writes_can_be_traced(local: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with TraceCollector() as collector:
        monkeypatch.setenv("THREEFS_TRACE", collector.endpoint)
        address = asyncio.run(local.up()).address
        with threefs_client.connect(address) as fs:
            fs.write_file("/a", b"a")
        spans = collector.wait_until(lambda found: {"client write", "persist"} <= {span.name for span in found})
    assert {span.program for span in spans} == {"threefs-client", "threefs-storage"}


def test_a_program_that_does_not_start_is_named_with_its_reason(local: LocalCluster) -> None:
    local.directory.mkdir()
    blocked = cluster_file.fresh(SMALL)
    cluster_file.save(local.directory, blocked)
    data = local.directory / "manager" / "data"
    data.mkdir(parents=True)
    (data / "kv").write_text("not a directory")
    with pytest.raises(Unavailable, match=r"manager did not start: .+ \(log: .*manager/log\)"):
        asyncio.run(local.up(SMALL))
    assert names(local) == set()


def test_a_first_start_that_failed_may_be_repeated_with_other_numbers(local: LocalCluster) -> None:
    local.directory.mkdir()
    (local.directory / "manager").mkdir()
    cluster_file.save(local.directory, cluster_file.fresh(SMALL))
    (local.directory / "manager" / "data").write_text("in the way")
    with pytest.raises(Unavailable, match="manager did not start"):
        asyncio.run(local.up(SMALL))
    (local.directory / "manager" / "data").unlink()
    state = asyncio.run(local.up(Plan(storage=2, replicas=2)))
    assert names(local) == {"manager", "meta", "storage-1", "storage-2"} and state.plan.replicas == 2
    with pytest.raises(InvalidArgument, match="2 storage processes and 2 replicas; a larger --storage"):
        asyncio.run(local.up(SMALL))


def test_the_port_of_the_first_start_stays_and_another_one_is_refused(local: LocalCluster) -> None:
    first = asyncio.run(local.up(SMALL))
    address = first.program("manager").addresses[0]
    port = int(address.rpartition(":")[2])
    asyncio.run(local.down())
    with pytest.raises(InvalidArgument, match=f"serves at {address} since its first start; leave --port"):
        asyncio.run(local.up(port=port + 1))
    with pytest.raises(InvalidArgument, match=f"serves at {address} since its first start; leave --port"):
        local.planned(port=port + 1)
    assert names(local) == set()
    assert asyncio.run(local.up(port=port)).program("manager").addresses[0] == address


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(AlreadyExists, match="not empty"):
        asyncio.run(LocalCluster(tmp_path).up(SMALL))
    assert not (tmp_path / "manager").exists()


def test_nothing_to_stop(tmp_path: Path) -> None:
    assert asyncio.run(LocalCluster(tmp_path / "nowhere").down()) == []
    assert not (tmp_path / "nowhere").exists()


def test_one_command_at_a_time(tmp_path: Path) -> None:
    async def work() -> None:
        one, other = LocalCluster(tmp_path / "c"), LocalCluster(tmp_path / "c")
        first = asyncio.create_task(one.up(SMALL))
        await asyncio.sleep(0)
        try:
            with pytest.raises(Unavailable, match="another threefs command"):
                await other.up(SMALL)
        finally:
            await first
            await one.down()

    asyncio.run(work())


def test_settings_are_toml() -> None:
    settings: dict[str, str | int] = {"data_dir": 'a "b" \\ ü\n', "port": 7}
    assert tomllib.loads(local_cluster.toml(settings)) == settings


def test_storage_that_does_not_start_does_not_keep_a_cluster_with_data_from_running(local: LocalCluster) -> None:
    plan = Plan(storage=2, replicas=2)
    asyncio.run(local.up(plan))
    asyncio.run(local.down())
    (data, unexpected) = (local.directory / "storage-1" / "data", local.directory / "storage-1" / "elsewhere")
    data.rename(unexpected)
    data.write_text("not a directory")
    with pytest.raises(Unavailable, match=r"storage-1 did not start: .*; the rest of the cluster runs") as refused:
        asyncio.run(local.up())
    assert "storage-2" not in str(refused.value), "it has its time all the same"
    told: list[str] = []
    assert asyncio.run(local.up(lacking=told)).address and told == [refused.value.message]
    assert names(local) == {"manager", "meta", "storage-2"}
    data.unlink()
    unexpected.rename(data)
    asyncio.run(local.up())
    assert names(local) == {"manager", "meta", "storage-1", "storage-2"}


def test_storage_that_waits_is_named_with_what_it_waits_for(
    local: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one who can tell it to wait no longer needs the cluster for that."""
    plan = Plan(storage=2, replicas=2)
    asyncio.run(local.up(plan))
    asyncio.run(local.down())

    async def mark() -> None:
        store = await engine_url.open_engine(engine_url.url_of("", local.directory / "manager" / "data" / "kv"))
        tx = store.begin()
        write_mark(tx, complete=True)
        await tx.commit()
        await store.close()

    asyncio.run(mark())
    shutil.rmtree(local.directory / "storage-2" / "data")

    def shorten_the_wait(line: str) -> None:
        """A busy machine takes its time to start the manager and the meta service, and until both storage processes
        have said what they wait for."""
        if not line.startswith("meta serves"):
            return
        deadline = time.monotonic() + 60
        for name in ("storage-1", "storage-2"):
            while "accept-unheard" not in processes.last_log_line(local.directory / name / "log"):
                assert time.monotonic() < deadline, name
                time.sleep(0.05)
        monkeypatch.setattr(local_cluster, "START_S", 1.0)

    with pytest.raises(Unavailable, match=r"storage-2 was not ready after 1 s: .*chain accept-unheard") as refused:
        asyncio.run(local.up(progress=shorten_the_wait))
    assert "awaited: 2" in str(refused.value)
    assert names(local) == {"manager", "meta", "storage-1", "storage-2"}


async def test_it_is_up_when_its_chains_take_writes(tmp_path: Path) -> None:
    """At first the manager believes that all targets serve, though none has been heard of."""
    member = pb.ChainMember(target_id=101, state=pb.SERVING)
    chain = pb.Chain(chain_id=1, version=1, members=[member])
    report = pb.TargetReport(target_id=101, local_state=pb.LOCAL_UPTODATE, chain_version=1)
    unheard = pb.GetStatusReply(chains=[chain])
    heard = pb.GetStatusReply(chains=[chain], nodes=[pb.NodeStatus(alive=True, targets=[report])])
    answers = [unheard, unheard, heard]

    async def status(request: pb.GetStatusRequest) -> pb.GetStatusReply:
        return answers.pop(0)

    server = Server(RealNet(), identity("a" * 32))
    server.serve(GET_STATUS, status)
    address = await server.start("127.0.0.1", 0)
    state = cluster_file.fresh(Plan())
    state = state.replace(dataclasses.replace(state.program("manager"), addresses=(address,)))
    told: list[str] = []
    await LocalCluster(tmp_path)._await_chains(state, told.append)
    assert not answers and not told
    await server.stop(0)
