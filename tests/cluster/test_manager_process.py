"""The manager as a real process."""

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.harness.processes import START_S, Program, free_port
from threefs.cluster.registration import Registration
from threefs.cluster.routing_watcher import RoutingWatcher
from threefs.env.net import RealNet
from threefs.errors import AlreadyExists, NotFound, NotPrimary, Unavailable, WrongCluster
from threefs.routing import NodeKind
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.grpc_binding import ControlClient
from threefs.rpc.handshake import Identity
from threefs.rpc.methods import GET_ROUTING, GET_STATUS, HEARTBEAT, INIT, REGISTER
from threefs.wire import manager_pb2 as pb

PLAN = pb.InitRequest(
    storage=[pb.PlannedNode(node_id=n, domain=f"d{n}") for n in (1, 2, 3)], replicas=3, targets_per_disk=2
)
ANSWER_S = 60.0  # of a process that may not run for seconds, on a busy machine


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Program]:
    with Program("threefs_manager", tmp_path / "manager", port=0, control_port=0) as program:
        yield program.start()


def peers(cluster_id: str = "") -> ConnectionPool:
    return ConnectionPool(RealNet(), Identity(cluster_id, os.urandom(16).hex()))


def test_a_cluster_is_made_joined_and_remembered(manager: Program) -> None:
    async def first() -> tuple[str, int]:
        control, frames = ControlClient(manager.addresses[1]), peers()
        with pytest.raises(Unavailable, match="no plan yet"):
            await control.call(
                REGISTER,
                pb.RegisterRequest(node_id=1, kind=pb.STORAGE, address="a:1", incarnation=1),
                timeout_s=ANSWER_S,
            )
        made = await control.call(INIT, PLAN, timeout_s=ANSWER_S)
        again = await frames.call(manager.address, INIT, PLAN, timeout_s=ANSWER_S)
        assert again.cluster_id == made.cluster_id, "init is idempotent, over either binding"
        other = pb.InitRequest(storage=PLAN.storage, replicas=1, targets_per_disk=1)
        with pytest.raises(AlreadyExists, match="another plan"):
            await control.call(INIT, other, timeout_s=ANSWER_S)
        cluster = RoutingWatcher(frames, [manager.address])
        await cluster.start(ANSWER_S)
        before = cluster.routing.version
        register = pb.RegisterRequest(node_id=2, kind=pb.STORAGE, address="127.0.0.1:9", incarnation=7)
        await control.call(REGISTER, register, timeout_s=ANSWER_S)
        routing = await cluster.refresh(before, ANSWER_S)
        assert [n.address for n in routing.nodes.values()] == ["", "127.0.0.1:9", ""], "the long poll tells"
        await control.call(HEARTBEAT, pb.HeartbeatRequest(node_id=2, incarnation=7), timeout_s=ANSWER_S)
        with pytest.raises(NotFound, match="started anew"):
            await control.call(HEARTBEAT, pb.HeartbeatRequest(node_id=2, incarnation=6), timeout_s=ANSWER_S)
        with pytest.raises(NotFound, match="no storage node 9"):
            await control.call(
                REGISTER,
                pb.RegisterRequest(node_id=9, kind=pb.STORAGE, address="a:1", incarnation=1),
                timeout_s=ANSWER_S,
            )
        register.cluster_id = "ab" * 16
        with pytest.raises(WrongCluster):
            await control.call(REGISTER, register, timeout_s=ANSWER_S)
        with pytest.raises(WrongCluster):
            await peers("cd" * 16).call(manager.address, GET_STATUS, pb.GetStatusRequest(), timeout_s=ANSWER_S)
        status = await frames.call(manager.address, GET_STATUS, pb.GetStatusRequest(), timeout_s=ANSWER_S)
        assert [n.alive for n in status.nodes] == [False, True, False]
        await cluster.close()
        await frames.close()
        await control.close()
        return status.cluster_id, status.manager_epoch

    async def second() -> pb.GetStatusReply:
        frames = peers()
        status = await frames.call(manager.address, GET_STATUS, pb.GetStatusRequest(), timeout_s=ANSWER_S)
        await frames.close()
        return status

    cluster_id, epoch = asyncio.run(first())
    manager.kill()
    manager.start()
    status = asyncio.run(second())
    assert (status.cluster_id, status.manager_epoch) == (cluster_id, epoch + 1), "a restart keeps all, in a new epoch"
    assert status.nodes[1].node.address == "127.0.0.1:9"
    assert len(status.chains) == 2


def test_random_bytes_on_either_port_do_no_harm(manager: Program) -> None:
    for address in manager.addresses:
        host, port = address.rsplit(":", 1)
        for size in (1, 31, 32, 64, 4096, 100_000):
            with socket.create_connection((host, int(port)), timeout=60) as stream:
                try:
                    stream.sendall(os.urandom(size))
                except OSError:
                    continue

    assert asyncio.run(call_init(manager))


def test_a_missing_server_is_reported_with_the_address() -> None:
    async def ask() -> None:
        frames = peers()
        await RoutingWatcher(frames, ["127.0.0.1:1"]).start(0.1)

    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1.*threefs up"):
        asyncio.run(ask())


def test_bad_settings_are_named(tmp_path: Path) -> None:
    assert "unknown setting 'colour'" in ends_with(Program("threefs_manager", tmp_path, colour="red"), 2)


def ends_with(program: Program, code: int) -> str:
    """Launch a program that is to fail; its log."""
    program.launch()
    assert program.process.wait(START_S) == code, program.log()
    assert program.process.stdout is not None
    program.process.stdout.close()
    return program.log()


def test_data_belongs_to_one_manager_at_a_time(manager: Program, tmp_path: Path) -> None:
    second = Program("threefs_manager", tmp_path / "second", port=0, control_port=0)
    second.settings["data_dir"] = manager.settings["data_dir"]
    text = ends_with(second, 1)
    assert "threefs-manager: " in text and "Traceback" not in text and str(manager.settings["data_dir"]) in text


@pytest.mark.parametrize("which", ["port", "control_port"])
def test_a_port_in_use_is_named(which: str, manager: Program, tmp_path: Path) -> None:
    taken = manager.addresses[["port", "control_port"].index(which)]
    ports: dict[str, Any] = {"port": 0, "control_port": 0, which: int(taken.rpartition(":")[2])}
    text = ends_with(Program("threefs_manager", tmp_path / "second", **ports), 1)
    assert taken in text and "Traceback" not in text


def test_data_of_another_cluster_is_refused(tmp_path: Path) -> None:
    program = Program("threefs_manager", tmp_path, port=0, control_port=0).start()
    asyncio.run(call_init(program))
    program.stop()
    file = tmp_path / "data" / "cluster_id"
    own = file.read_text().strip()
    file.write_text("ab" * 16 + "\n")
    text = ends_with(program, 1)
    assert own in text and "ab" * 16 in text and "Traceback" not in text


async def call_init(program: Program) -> str:
    frames = peers()
    reply = await frames.call(program.address, INIT, PLAN, timeout_s=ANSWER_S)
    await frames.close()
    return reply.cluster_id


def test_waiting_calls_do_not_delay_the_stop(tmp_path: Path) -> None:
    program = Program("threefs_manager", tmp_path, port=0, control_port=0).start()

    async def wait_and_stop() -> None:
        await call_init(program)
        control, frames = ControlClient(program.addresses[1]), peers()
        request = pb.GetRoutingRequest(known_version=1, wait_ms=60_000)
        waiting = [
            asyncio.ensure_future(control.call(GET_ROUTING, request, timeout_s=60)),
            asyncio.ensure_future(frames.call(program.address, GET_ROUTING, request, timeout_s=60)),
        ]
        await control.call(GET_STATUS, pb.GetStatusRequest(), timeout_s=ANSWER_S)
        await frames.call(program.address, GET_STATUS, pb.GetStatusRequest(), timeout_s=ANSWER_S)
        await asyncio.to_thread(program.stop)
        assert [type(end) for end in await asyncio.gather(*waiting, return_exceptions=True)] == [
            NotPrimary,
            NotPrimary,
        ], "they are to ask another one"
        await frames.close()
        await control.close()

    asyncio.run(wait_and_stop())
    assert "cut off" not in program.log()


def test_health_and_reflection_are_there_for_other_languages(manager: Program) -> None:
    with grpc.insecure_channel(manager.addresses[1]) as channel:
        request = health_pb2.HealthCheckRequest(service="threefs.wire.Manager")
        reply = health_pb2_grpc.HealthStub(channel).Check(request, timeout=60)
        assert reply.status == health_pb2.HealthCheckResponse.SERVING
        listing = reflection_pb2.ServerReflectionRequest(list_services="")
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        (answer,) = stub.ServerReflectionInfo(iter([listing]), timeout=60)
        assert "threefs.wire.Manager" in {service.name for service in answer.list_services_response.service}


def test_a_service_registers_as_soon_as_it_can_and_survives_a_new_manager(tmp_path: Path) -> None:
    program = Program("threefs_manager", tmp_path / "manager", port=free_port(), control_port=free_port(), lease_s=1.0)

    async def main() -> None:
        control = ControlClient(f"127.0.0.1:{program.settings['control_port']}")
        node = Registration(
            control,
            kind=NodeKind.STORAGE,
            node_id=2,
            domain="",
            cluster_file=tmp_path / "node" / "cluster_id",
        )
        starting = asyncio.create_task(node.start("127.0.0.1:9"))
        await asyncio.to_thread(program.start)
        assert not starting.done(), "there is no plan yet"
        cluster_id = await call_init(program)
        await starting
        assert node.cluster_id == cluster_id == (tmp_path / "node" / "cluster_id").read_text().strip()
        await alive(control)
        first = node.incarnation
        await asyncio.to_thread(program.kill)
        await asyncio.to_thread(program.start)
        status = await alive(control)
        assert status.manager_epoch == 2
        assert status.nodes[1].node.incarnation == node.incarnation == first, "without a new registration"
        await node.stop()
        await control.close()

    async def alive(control: ControlClient) -> pb.GetStatusReply:
        while True:
            try:
                status = await control.call(GET_STATUS, pb.GetStatusRequest(), timeout_s=ANSWER_S)
                if status.nodes[1].alive:
                    return status
            except Unavailable:
                pass
            await asyncio.sleep(0.05)

    with program:
        asyncio.run(main())
