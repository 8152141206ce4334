"""Processes that were fenced, doubled, or whose store has failed: each does its work again, or ends."""

import os
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.cluster import LocalCluster
from tests.harness.processes import Program
from threefs.errors import NodeInUse, StaleIncarnation, ThreefsError
from threefs.rpc import methods
from threefs.wire import manager_pb2 as pb

LEASE_S = 5.0  # on a busy machine a process may not run for seconds, and its node must live all the same


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path, lease_s=LEASE_S) as running:
        yield running


def within(seconds: float, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)


def states(cluster: LocalCluster) -> set[int]:
    reply = cluster.ask(methods.GET_ROUTING, pb.GetRoutingRequest())
    return {member.state for chain in reply.routing.chains for member in chain.members}


@pytest.mark.timeout(300)
def test_forged_registrations_stop_no_node(cluster: LocalCluster) -> None:
    with cluster.connect() as fs:
        fs.write_file("/a", b"a")
        nodes = cluster.ask(methods.GET_ROUTING, pb.GetRoutingRequest()).routing.nodes
        for node in nodes:
            for incarnation, error in ((77, StaleIncarnation), (2**63, NodeInUse)):
                forged = pb.RegisterRequest(
                    node_id=node.node_id, kind=node.kind, address="127.0.0.1:7660", incarnation=incarnation
                )
                with pytest.raises(error):
                    cluster.ask(methods.REGISTER, forged)
        for second in range(3):
            fs.write_file("/a", b"%d" % second)
            assert fs.read_file("/a") == b"%d" % second
            time.sleep(1)
        within(60, lambda: states(cluster) == {pb.SERVING})


@pytest.mark.timeout(300)
def test_a_fenced_process_comes_back_by_itself(cluster: LocalCluster) -> None:
    """A stranger registered as node 1 while it was stopped for longer than T."""
    victim = cluster.storage[1]
    victim.process.send_signal(19)
    time.sleep(1.5 * LEASE_S)
    forged = pb.RegisterRequest(node_id=1, kind=pb.STORAGE, address="127.0.0.1:7660", incarnation=2**62)
    within(60, lambda: registered(cluster, forged))
    victim.process.send_signal(18)

    def back() -> bool:
        node = cluster.ask(methods.GET_ROUTING, pb.GetRoutingRequest()).routing.nodes[0]
        return node.address == victim.address and node.incarnation > 2**62 and states(cluster) == {pb.SERVING}

    within(60, back)
    assert victim.process.poll() is None


def registered(cluster: LocalCluster, request: pb.RegisterRequest) -> bool:
    try:
        cluster.ask(methods.REGISTER, request)
    except ThreefsError:
        return False
    return True


@pytest.mark.timeout(300)
def test_a_double_of_a_node_that_lives_is_refused_and_ends(cluster: LocalCluster, tmp_path: Path) -> None:
    settings = {**cluster.storage[1].settings, "data_dir": tmp_path / "double" / "data", "port": 0}
    double = Program("threefs_storage", tmp_path / "double", **settings)
    double.launch()
    with cluster.connect() as fs:
        fs.write_file("/a", b"a")
        assert double._reap() == 1
        assert f"node 1 is alive at {cluster.storage[1].address}" in double.log()
        assert fs.read_file("/a") == b"a"
    within(60, lambda: states(cluster) == {pb.SERVING})


@pytest.mark.timeout(300)
def test_a_store_that_ran_out_of_descriptors_works_again(cluster: LocalCluster) -> None:
    pid = cluster.meta.process.pid
    with cluster.connect() as patient, cluster.connect(timeout_s=3.0) as fs:
        for number in range(8):
            patient.write_file(f"/{number}", b"a")
        limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")), limits[1]))
        with pytest.raises(ThreefsError):
            for number in range(4000):  # every 32 MiB or so the store begins new files
                fs.setxattr(f"/{number % 8}", "user.a", os.urandom(60_000))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)

        def works() -> bool:
            try:
                fs.write_file("/after", b"1")
            except ThreefsError:
                return False
            return True

        within(90, works)
        assert patient.read_file("/after") == b"1"
    assert cluster.meta.process.poll() is None, "without a restart"
