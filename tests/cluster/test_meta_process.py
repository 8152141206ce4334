"""The meta service as a real process, with storage behind it."""

import asyncio
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar
from urllib.request import urlopen

import pytest

from tests.harness.cluster import LocalCluster
from tests.harness.namespace_audit import audit
from tests.harness.processes import free_port
from threefs.env.net import RealNet
from threefs.errors import AlreadyExists, InvalidArgument, NameTooLong, NotFound
from threefs.kv.rocks import RocksEngine
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.handshake import Identity
from threefs.rpc.methods import CREATE
from threefs.wire import meta_pb2 as pb

T = TypeVar("T")
MIB = 1 << 20


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path, same_ports=True) as running:
        yield running
    asyncio.run(_audited(tmp_path / "meta" / "data" / "kv"))


async def _audited(directory: Path) -> None:
    """Invariant I10 on what the stopped service has left."""
    engine = await RocksEngine.open(directory)
    try:
        await audit(engine)
    finally:
        await engine.close()


def eventually(what: Callable[[], T], is_true: Callable[[T], bool]) -> None:
    for _ in range(2000):  # removed files are kept for a while, for those who read them
        if is_true(seen := what()):
            return
        time.sleep(0.1)
    raise AssertionError(f"still {seen}")


@pytest.mark.timeout(300)
def test_a_tree_survives_kill_9_and_is_collected(cluster: LocalCluster) -> None:
    with cluster.connect() as fs:
        fs.mkdir("/a/b/c", parents=True)
        for number in range(20):
            fs.write_file(f"/a/b/f{number}", os.urandom(1000))
        fs.write_file("/a/b/c/big", b"x" * (3 * MIB))
        fs.symlink("b/f0", "/a/link")
        fs.hard_link("/a/b/f1", "/kept")
        kept = fs.read_file("/kept")
        fs.rename("/a/b/c", "/c")
        before = {entry.name for entry in fs.list("/a/b")}
        cluster.meta.kill()
        cluster.meta.start()
        assert {entry.name for entry in fs.list("/a/b")} == before
        assert fs.read_file("/c/big") == b"x" * (3 * MIB)
        fs.truncate("/c/big", MIB + 5)
        fs.truncate("/c/big", 2 * MIB)
        assert fs.read_file("/c/big") == b"x" * (MIB + 5) + bytes(MIB - 5), "what was cut off reads as zeros"
        fs.remove("/a", recursive=True)
        fs.remove("/c", recursive=True)
        assert [entry.name for entry in fs.list("/")] == ["kept"]
        assert fs.read_file("/kept") == kept
        eventually(lambda: cluster.chunks(), lambda count: count == 3)
        with pytest.raises(NotFound):
            fs.read_file("/a/b/f3")


def test_prometheus_finds_what_the_service_does(cluster: LocalCluster) -> None:
    """Also before anybody has called it, and beside calls."""
    cluster.meta.stop()
    cluster.meta.settings["metrics_port"] = free_port()
    cluster.meta.start()

    def scrape() -> dict[str, float]:
        with urlopen(f"http://127.0.0.1:{cluster.meta.settings['metrics_port']}/metrics", timeout=60) as answer:
            lines = [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    with cluster.connect() as fs:
        fs.mkdir("/d")
        before = scrape()
        made = fs.create_many([f"/d/{number}" for number in range(300)])
        assert len(made) == 300
        after = scrape()
    names = 'threefs_meta_calls_names_total{method="Batch"}'
    assert after[names] - before.get(names, 0) == 300
    assert after["threefs_meta_transactions_total"] > before["threefs_meta_transactions_total"]
    assert after["threefs_meta_removals_waiting"] == 0


def test_replays_and_bad_input_over_the_wire(cluster: LocalCluster) -> None:
    async def ask() -> None:
        peers = ConnectionPool(RealNet(), Identity("", os.urandom(16).hex()))

        async def create(path: bytes, number: int) -> pb.CreateReply:
            mutation = pb.Mutation(client=b"c" * 16, request=number)
            request = pb.CreateRequest(mutation=mutation, place=pb.Place(path=path), exclusive=True, caller=pb.Caller())
            return await peers.call(cluster.meta.address, CREATE, request, timeout_s=10)

        first = await create(b"/once", 1)
        assert await create(b"/once", 1) == first
        with pytest.raises(AlreadyExists):
            await create(b"/once", 2)
        with pytest.raises(InvalidArgument):
            await create(b"/a\0b", 3)
        with pytest.raises(NameTooLong):
            await create(b"/" + b"n" * 256, 3)
        await peers.close()

    host, port = cluster.meta.address.rsplit(":", 1)
    for size in (1, 31, 64, 4096, 100_000):
        with socket.create_connection((host, int(port)), timeout=60) as stream:
            stream.sendall(os.urandom(size))
    asyncio.run(ask())
    with cluster.connect() as fs:
        eventually(fs.statfs, lambda space: space.capacity_bytes > 0)
