from pathlib import Path

import pytest
from threefs_cli import manager_rebuild
from threefs_cli.manager_rebuild import Copy
from threefs_manager.store.cluster_store import read_cluster, read_routing

from threefs import routing as routing_module
from threefs.cluster.manager_records import METADATA_KEY
from threefs.errors import InvalidArgument, NotFound
from threefs.kv.memory import MemoryEngine
from threefs.wire import manager_pb2 as pb

ADDED = 1_000_000_007


def routing(version: int = 9, cluster: str = "c", third: int = 301) -> pb.Routing:
    targets = {101: 1, 201: 2, third: 3}
    members = [pb.ChainMember(target_id=target, state=pb.SERVING) for target in targets]
    return pb.Routing(
        version=version,
        cluster_id=cluster,
        nodes=[
            *(pb.Node(node_id=n, kind=pb.STORAGE, domain=f"d{n}", address=f"h:{n}", incarnation=77) for n in (1, 2, 3)),
            pb.Node(node_id=1_000_001, kind=pb.META, address="h:9", incarnation=77),
        ],
        targets=[pb.Target(target_id=t, node_id=n, chain_id=1, store_id=5) for t, n in targets.items()],
        chains=[pb.Chain(chain_id=1, version=4, members=members)],
        tables=[pb.ChainTable(table_id=1, chains=[1], min_replicas=2, replicas=3)],
        lease_ms=10_000,
    )


def copy(node: int, of: pb.Routing, highest: int = 0) -> Copy:
    return Copy(Path(f"/{node}/routing"), node, of, max([highest, *(target.target_id for target in of.targets)]))


def test_the_newest_copy_counts() -> None:
    found = manager_rebuild.plan([copy(1, routing(9)), copy(2, routing(12)), copy(3, routing(10))])
    assert found.newest.node_id == 2 and found.read_nodes == (1, 2, 3) and found.unread_nodes == ()
    assert not any("were not read" in loss for loss in found.losses())


def test_nodes_whose_copy_is_missing_are_named_as_a_loss() -> None:
    found = manager_rebuild.plan([copy(1, routing())])
    assert found.unread_nodes == (2, 3)
    assert "the copies of node 2, 3 were not read" in found.losses()[0]


def test_chains_that_were_changing_are_named_as_a_loss() -> None:
    changing = routing()
    changing.chains[0].members.add(target_id=ADDED, state=pb.OFFLINE)
    found = manager_rebuild.plan([copy(node, changing) for node in (1, 2, 3)])
    assert found.unsettled_chains == (1,) and "chain 1 gained or lost a copy" in found.losses()[0]
    leaving = routing()
    leaving.chains[0].members[0].leaving = True
    assert manager_rebuild.plan([copy(1, leaving)]).unsettled_chains == (1,)


def test_copies_of_several_clusters_or_none_are_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"several clusters: /1/routing of cluster c; /2/routing of cluster d"):
        manager_rebuild.plan([copy(1, routing()), copy(2, routing(cluster="d"))])
    with pytest.raises(NotFound, match="name the data_dir of each storage service"):
        manager_rebuild.plan([])


def test_a_copy_without_a_table_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"/1/routing is no copy of a cluster in use: it has no chain table"):
        manager_rebuild.plan([copy(1, pb.Routing(version=9, cluster_id="c"))])


async def test_the_manager_reads_what_was_written() -> None:
    known = routing(third=ADDED)
    engine = MemoryEngine()
    tx = engine.begin()
    for key, value in manager_rebuild.plan([copy(1, known)]).pairs():
        tx.set(key, value)
    await tx.commit()
    found = routing_module.to_wire(await read_routing(engine.begin()))
    assert (found.chains, found.targets, found.tables) == (known.chains, known.targets, known.tables)
    assert all(not node.incarnation for node in found.nodes), "every service registers as at its first start"
    cluster = await read_cluster(engine.begin())
    assert cluster.next_target > ADDED and cluster.next_meta_node > 1_000_001, "no id is given twice"
    assert (cluster.replicas, cluster.lease_ms, cluster.cluster_id) == (3, 10_000, "c")
    assert await engine.begin().get(METADATA_KEY) is not None


async def test_no_number_that_a_node_was_told_of_is_given_out_again() -> None:
    """More targets than a restore skips were made after the backup whose manager the newest copy follows."""
    far = ADDED + 100_000
    for other in (copy(3, routing(8, third=far)), copy(3, routing(), highest=far)):
        engine = MemoryEngine()
        tx = engine.begin()
        for key, value in manager_rebuild.plan([copy(1, routing()), other]).pairs():
            tx.set(key, value)
        await tx.commit()
        assert (await read_cluster(engine.begin())).next_target > far
