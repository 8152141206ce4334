"""The manager as a real process."""

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import Program
from threefs.cluster import Cluster
from threefs.env.net import RealNet
from threefs.errors import AlreadyExists, NotFound, Unavailable, WrongCluster
from threefs.rpc.control import ControlClient
from threefs.rpc.identity import Identity
from threefs.rpc.methods import GET_STATUS, HEARTBEAT, INIT, REGISTER
from threefs.rpc.peers import Peers
from threefs.wire import manager_pb2 as pb

PLAN = pb.InitRequest(
    storage=[pb.PlannedNode(node_id=n, domain=f"d{n}") for n in (1, 2, 3)], replicas=3, targets_per_disk=2
)


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Program]:
    with Program("threefs_manager", tmp_path / "manager", port=0, control_port=0) as program:
        yield program.start()


def peers(cluster_id: str = "") -> Peers:
    return Peers(RealNet(), Identity(cluster_id, os.urandom(16).hex()))


def test_a_cluster_is_made_joined_and_remembered(manager: Program) -> None:
    async def first() -> tuple[str, int]:
        control, frames = ControlClient(manager.addresses[1]), peers()
        with pytest.raises(Unavailable, match="no plan yet"):
            await control.call(
                REGISTER, pb.RegisterRequest(node_id=1, kind=pb.STORAGE, address="a:1", incarnation=1), timeout_s=5
            )
        made = await control.call(INIT, PLAN, timeout_s=5)
        again = await frames.call(manager.address, INIT, PLAN, timeout_s=5)
        assert again.cluster_id == made.cluster_id, "init is idempotent, over either binding"
        other = pb.InitRequest(storage=PLAN.storage, replicas=1, targets_per_disk=1)
        with pytest.raises(AlreadyExists, match="another plan"):
            await control.call(INIT, other, timeout_s=5)
        cluster = Cluster(frames, [manager.address])
        await cluster.start(5)
        before = cluster.routing.version
        register = pb.RegisterRequest(node_id=2, kind=pb.STORAGE, address="127.0.0.1:9", incarnation=7)
        await control.call(REGISTER, register, timeout_s=5)
        routing = await cluster.refresh(before, 5)
        assert [n.address for n in routing.nodes.values()] == ["", "127.0.0.1:9", ""], "the long poll tells"
        await control.call(HEARTBEAT, pb.HeartbeatRequest(node_id=2, incarnation=7), timeout_s=5)
        with pytest.raises(NotFound, match="started anew"):
            await control.call(HEARTBEAT, pb.HeartbeatRequest(node_id=2, incarnation=6), timeout_s=5)
        with pytest.raises(NotFound, match="no storage node 9"):
            await control.call(
                REGISTER, pb.RegisterRequest(node_id=9, kind=pb.STORAGE, address="a:1", incarnation=1), timeout_s=5
            )
        register.cluster_id = "ab" * 16
        with pytest.raises(WrongCluster):
            await control.call(REGISTER, register, timeout_s=5)
        with pytest.raises(WrongCluster):
            await peers("cd" * 16).call(manager.address, GET_STATUS, pb.GetStatusRequest(), timeout_s=5)
        status = await frames.call(manager.address, GET_STATUS, pb.GetStatusRequest(), timeout_s=5)
        assert [n.alive for n in status.nodes] == [False, True, False]
        await cluster.close()
        await frames.close()
        await control.close()
        return status.cluster_id, status.manager_epoch

    async def second() -> pb.GetStatusReply:
        frames = peers()
        status = await frames.call(manager.address, GET_STATUS, pb.GetStatusRequest(), timeout_s=5)
        await frames.close()
        return status

    cluster_id, epoch = asyncio.run(first())
    manager.kill()
    status = asyncio.run(second_after(manager, second))
    assert (status.cluster_id, status.manager_epoch) == (cluster_id, epoch + 1), "a restart keeps all, in a new epoch"
    assert status.nodes[1].node.address == "127.0.0.1:9"
    assert len(status.chains) == 2


async def second_after(manager: Program, second) -> pb.GetStatusReply:  # type: ignore[no-untyped-def]
    manager.start()
    reply: pb.GetStatusReply = await second()
    return reply


def test_random_bytes_on_either_port_do_no_harm(manager: Program) -> None:
    for address in manager.addresses:
        host, port = address.rsplit(":", 1)
        for size in (1, 31, 32, 64, 4096, 100_000):
            with socket.create_connection((host, int(port)), timeout=5) as stream:
                try:
                    stream.sendall(os.urandom(size))
                except OSError:
                    continue

    async def ask() -> pb.InitReply:
        frames = peers()
        reply = await frames.call(manager.address, INIT, PLAN, timeout_s=5)
        await frames.close()
        return reply

    assert asyncio.run(ask()).cluster_id


def test_nobody_there_is_said_with_the_address() -> None:
    async def ask() -> None:
        frames = peers()
        await Cluster(frames, ["127.0.0.1:1"]).start(0.1)

    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1.*threefs up"):
        asyncio.run(ask())


def test_bad_settings_are_named(tmp_path: Path) -> None:
    program = Program("threefs_manager", tmp_path, colour="red")
    program.launch()
    assert program.process.wait(30) == 2
    assert program.process.stdout is not None
    program.process.stdout.close()
    assert "unknown setting 'colour'" in program.log()
