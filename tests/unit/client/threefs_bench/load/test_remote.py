import asyncio
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.wrappers_pb2 import StringValue
from threefs_bench.load import fio_report, job_file, remote
from threefs_bench.load.job import Job
from threefs_bench.load.remote import LoadServer, RemoteRun, address_of, decode, encode, together
from threefs_bench.load.runner import Snapshot

from threefs.env.net import RealNet
from threefs.errors import (
    AccessDenied,
    ConnectionLost,
    InvalidArgument,
    InvalidSettings,
    NotAuthorised,
    Overloaded,
    ProtocolError,
    ThreefsError,
    Unavailable,
)
from threefs.rpc.handshake import Identity
from threefs.rpc.server import Server

pytestmark = pytest.mark.processes

KEY = "a key that is long enough"


def jobs(directory: Path, options: str = "rw=write") -> list[Job]:
    return job_file.parse_text(f"[a]\nioengine=posix\ndirectory={directory}\nsize=64k\n{options}", "x")


def ignore(snapshot: Snapshot) -> None:
    pass


async def test_two_hosts_do_the_same_job_on_files_of_their_own(tmp_path: Path) -> None:
    servers = [LoadServer(KEY, directory=tmp_path) for _ in range(2)]
    addresses = [await server.start("127.0.0.1", 0) for server in servers]
    snapshots: list[Snapshot] = []
    entries, services = await RemoteRun(addresses, jobs(tmp_path), snapshots.append, key=KEY).run()
    assert [(entry.host, entry.result.operations) for entry in entries] == [(address, 16) for address in addresses]
    assert len(list(tmp_path.iterdir())) == 2 and services == [{}, {}]
    assert any(snapshot.ready for snapshot in snapshots) and snapshots[-1].state == "end"
    for server in servers:
        await server.stop()


async def test_two_hosts_begin_each_phase_together(tmp_path: Path) -> None:
    servers = [LoadServer(KEY, directory=tmp_path) for _ in range(2)]
    addresses = [await server.start("127.0.0.1", 0) for server in servers]
    phases = [*jobs(tmp_path), *jobs(tmp_path, "rw=read\nstonewall")]
    snapshots: list[Snapshot] = []
    entries, _ = await RemoteRun(addresses, phases, snapshots.append, key=KEY).run()
    assert [entry.result.operations for entry in entries] == [16] * 4
    assert {snapshot.phase for snapshot in snapshots if snapshot.ready} == {0, 1}
    for server in servers:
        await server.stop()


def test_hosts_do_not_verify_what_others_of_them_write(tmp_path: Path) -> None:
    """Each found what another one had written into their file, and called it corrupt."""
    shared = jobs(tmp_path, "rw=write\nfilename=x\nverify=crc32c")
    with pytest.raises(InvalidArgument, match="job 'a': verify cannot judge a file that several hosts write"):
        RemoteRun(["a", "b"], shared, ignore, key=KEY)
    RemoteRun(["a"], shared, ignore, key=KEY)
    RemoteRun(["a", "b"], jobs(tmp_path, "rw=write\nverify=crc32c"), ignore, key=KEY)
    RemoteRun(["a", "b"], jobs(tmp_path, "rw=read\nfilename=x\nverify=crc32c"), ignore, key=KEY)


async def test_without_the_key_nothing_runs(tmp_path: Path) -> None:
    server = LoadServer(KEY, directory=tmp_path)
    address = await server.start("127.0.0.1", 0)
    for key in ("", "another key, also long"):
        with pytest.raises((NotAuthorised, Unavailable, ConnectionLost)):
            await RemoteRun([address], jobs(tmp_path), ignore, key=key).run()
    assert not list(tmp_path.iterdir())
    await server.stop()


async def test_a_server_for_everybody_is_on_this_host_only() -> None:
    with pytest.raises(InvalidSettings, match="needs a key"):
        await LoadServer("").start("0.0.0.0", 0)


@pytest.mark.parametrize("options", ["filename=../x", "filename=link/x", "rw=write\nnumjobs=2"])
async def test_files_outside_of_the_allowed_directory_are_refused(tmp_path: Path, options: str) -> None:
    allowed, other = tmp_path / "allowed", tmp_path / "other"
    allowed.mkdir()
    other.mkdir()
    (allowed / "link").symlink_to(other)
    server = LoadServer(KEY, directory=allowed)
    address = await server.start("127.0.0.1", 0)
    (allowed / f"{address.replace(':', '-')}.a.1.0").symlink_to(other / "x")  # the file of the second process
    with pytest.raises(AccessDenied, match="is not below"):
        await RemoteRun([address], jobs(allowed, options), ignore, key=KEY).run()
    with pytest.raises(AccessDenied, match="is not below"):
        await RemoteRun([address], jobs(other), ignore, key=KEY).run()
    await server.stop()
    closed = LoadServer(KEY)
    address = await closed.start("127.0.0.1", 0)
    with pytest.raises(AccessDenied, match="--allow-directory"):
        await RemoteRun([address], jobs(allowed), ignore, key=KEY).run()
    await closed.stop()


async def test_a_server_looks_at_a_bounded_number_of_paths(tmp_path: Path) -> None:
    server = LoadServer(KEY, directory=tmp_path)
    address = await server.start("127.0.0.1", 0)
    client = RemoteRun([address], jobs(tmp_path, "filesize=64k\nnrfiles=1m\nnumjobs=1024"), ignore, key=KEY)
    with pytest.raises(InvalidArgument, match="at most 65536 files"):
        await client.run()
    await server.stop()


async def test_one_run_at_a_time_and_a_stop_brings_the_figures(tmp_path: Path) -> None:
    server = LoadServer(KEY, directory=tmp_path)
    address = await server.start("127.0.0.1", 0)
    moving = asyncio.Event()

    def show(snapshot: Snapshot) -> None:
        if snapshot.counts:
            moving.set()

    first = RemoteRun([address], jobs(tmp_path, "time_based\nruntime=3600"), show, key=KEY)
    running = asyncio.create_task(first.run())
    await moving.wait()
    with pytest.raises(Overloaded, match="in progress"):
        await RemoteRun([address], jobs(tmp_path), ignore, key=KEY).run()
    first.stop()
    entries, _ = await running
    assert entries[0].result.operations > 0 and not entries[0].result.errno
    await server.stop()


async def test_a_run_is_kept_until_its_client_has_the_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client fetches nothing before all of its hosts are done. The next client of a host that is done first took
    the place of the figures, and its load was in those of the other hosts."""
    server = LoadServer(KEY, directory=tmp_path)
    address = await server.start("127.0.0.1", 0)
    sent = {"jobs": [{"given": dict(job.given), "inherited": dict(job.inherited)} for job in jobs(tmp_path)]}
    first = RemoteRun([address], [], ignore, key=KEY)

    async def ended_run() -> dict[str, Any]:
        run = {"run": (await first._call(address, remote.START, sent))["run"]}
        while not (await first._call(address, remote.POLL, {**run, "release": True}))["done"]:
            await asyncio.sleep(0.05)
        return run

    async def next_run() -> None:
        await RemoteRun([address], jobs(tmp_path), ignore, key=KEY).run()

    run = await ended_run()
    with pytest.raises(Overloaded, match="in progress"):
        await next_run()
    assert "result" in await first._call(address, remote.FETCH, {**run, "entry": 0})
    await next_run()
    await first._give_up(address, (await ended_run())["run"])
    left = (await first._call(address, remote.START, sent))["run"]
    await first._give_up(address, left)
    while server._runner is not None:
        await asyncio.sleep(0.05)
    await next_run()
    await ended_run()
    monkeypatch.setattr(remote, "SILENCE_S", 0.0)
    await next_run()
    await first._peers.close()
    await server.stop()


async def test_a_run_that_breaks_off_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> Any:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(fio_report, "entries", broken)
    server = LoadServer(KEY, directory=tmp_path)
    address = await server.start("127.0.0.1", 0)
    with pytest.raises(InvalidArgument, match="broken off: ZeroDivisionError"):
        await RemoteRun([address], jobs(tmp_path), ignore, key=KEY).run()
    await server.stop()


async def test_a_client_that_is_gone_ends_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "SILENCE_S", 0.5)
    server = LoadServer(KEY, directory=tmp_path)
    address = await server.start("127.0.0.1", 0)
    first = RemoteRun([address], jobs(tmp_path, "time_based\nruntime=3600"), ignore, key=KEY)
    await first._call(address, remote.START, {"jobs": [{"given": dict(j.given), "inherited": {}} for j in first._jobs]})
    await first._peers.close()
    assert server._runner is not None
    while server._runner is not None:
        await asyncio.sleep(0.05)
    monkeypatch.setattr(remote, "SILENCE_S", 3600.0)
    second = RemoteRun([address], jobs(tmp_path), ignore, key=KEY)
    entries, _ = await second.run()  # the figures of the first one were kept as long again
    assert entries[0].result.operations == 16
    await server.stop()


GOOD = {"snapshot": Snapshot(state="end").as_json(), "done": True, "failure": "", "entries": 1, "services": []}


@pytest.mark.parametrize(
    ("polled", "fetched"),
    [
        ({}, {}),
        (GOOD | {"snapshot": {"state": "asleep"}}, {}),
        (GOOD | {"snapshot": {"counts": [1]}}, {}),
        (GOOD | {"snapshot": {"fraction": "half"}}, {}),
        (GOOD | {"entries": 10**9}, {}),
        (GOOD | {"entries": float("inf")}, {}),
        (GOOD | {"services": [{"meta": "much"}]}, {}),
        (GOOD | {"services": 3}, {}),
        (GOOD, {}),
        (GOOD, {"job": {"given": {}, "inherited": {}}, "group": 0, "processes": 1, "result": {}}),
        (GOOD, {"group": float("nan")}),
    ],
)
async def test_a_host_whose_answers_mean_nothing_is_named(polled: dict[str, Any], fetched: dict[str, Any]) -> None:
    server = Server(RealNet(), Identity("", "1", KEY, "threefs-bench"), limits=remote.limits())

    async def start(message: StringValue) -> StringValue:
        return encode({"run": "1"})

    async def poll(message: StringValue) -> StringValue:
        return encode(polled)

    async def fetch(message: StringValue) -> StringValue:
        return encode(fetched)

    for method, handler in ((remote.START, start), (remote.POLL, poll), (remote.FETCH, fetch)):
        server.serve(method, handler)
    address = await server.start("127.0.0.1", 0)
    with pytest.raises(ProtocolError, match=f"{address}: its answer cannot be read"):
        await RemoteRun([address], jobs(Path("/tmp")), ignore, key=KEY).run()
    await server.stop(1.0)


async def test_a_host_that_dies_is_named_and_the_others_stop(tmp_path: Path) -> None:
    staying, dying = [LoadServer(KEY, directory=tmp_path) for _ in range(2)]
    addresses = [await server.start("127.0.0.1", 0) for server in (staying, dying)]
    moving = asyncio.Event()

    def show(snapshot: Snapshot) -> None:
        if snapshot.counts:
            moving.set()

    both = RemoteRun(addresses, jobs(tmp_path, "time_based\nruntime=3600"), show, key=KEY)
    running = asyncio.create_task(both.run())
    await moving.wait()
    await dying.stop()
    with pytest.raises(ThreefsError, match=addresses[1]):
        await running
    while staying._runner is not None:
        await asyncio.sleep(0.05)
    await staying.stop()


async def test_messages_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    server = LoadServer(KEY, directory=tmp_path)
    address = await server.start("127.0.0.1", 0)
    client = RemoteRun([address], jobs(tmp_path), ignore, key=KEY)
    bad: list[dict[str, Any]] = [{}, {"jobs": []}, {"jobs": [3]}, {"jobs": [{}] * 65}]
    bad.append({"jobs": [{"given": {"bs": "x"}, "inherited": {}}]})
    for fields in bad:
        with pytest.raises(InvalidArgument):
            await client._call(address, remote.START, fields)
    await client._peers.close()
    await server.stop()


def test_a_message_is_an_object() -> None:
    assert decode(encode({"a": 1})) == {"a": 1}
    for text in ("", "[1]", "3", "{", "[" * 100_000, '{"a": NaN}', '{"a": 1e999}'):
        message = encode({})
        message.value = text
        with pytest.raises(InvalidArgument, match="not an object"):
            decode(message)
    with pytest.raises(InvalidArgument):
        remote.snapshot_of({"nonsense": 1})


def test_hosts_have_a_default_port() -> None:
    assert address_of("node1") == "node1:8765" and address_of(" node1:9 ") == "node1:9"
    assert address_of("[::1]") == "[::1]:8765" and address_of("[::1]:9") == "[::1]:9"
    with pytest.raises(InvalidArgument):
        address_of("node1:port")


def test_hosts_together_are_as_far_as_the_slowest() -> None:
    fast = Snapshot(1, 2, "run", 0.2, counts={"read": [5, 50]})
    slow = Snapshot(0, 2, "verify", 0.9, counts={"read": [1, 10], "write": [2, 20]}, prepared=7)
    found = together([fast, slow])
    assert (found.phase, found.state, found.fraction, found.prepared) == (0, "verify", 0.9, 7)
    assert found.counts == {"read": [6, 60], "write": [2, 20]}
