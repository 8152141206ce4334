"""Which copy goes on when the disks that served a chain last are lost, and which chains a lost node has."""

import pytest
from threefs_cli.cluster_state import ClusterState
from threefs_cli.loss_commands import Candidate, candidates_of, chains_on, choose, describe, lost_json, lost_lines
from threefs_fsck.lost_files import LosingFile, LostFiles

from threefs.errors import InvalidArgument, NotFound
from threefs.wire import manager_pb2 as pb


def candidate(target_id: int, chunks: int, own_store: bool = True) -> Candidate:
    return Candidate(target_id, target_id // 100, "h:1", chunks, own_store)


def test_the_fullest_copy_that_is_no_new_store_goes_on() -> None:
    empty, old, older = candidate(101, 900, own_store=False), candidate(201, 70), candidate(301, 50)
    assert choose([empty, older, old], None) is old
    assert choose([empty, older, old], 301) is older
    assert choose([empty], None) is empty
    for candidates, named in (([], None), ([old], 999)):
        with pytest.raises(NotFound):
            choose(candidates, named)
    assert describe(empty) == "target 101 on node 1 at h:1 has 900 chunks, in a new store"
    assert describe(old).endswith("has 70 chunks")


def state(*, serving: bool = False) -> ClusterState:
    """Chain 1 is on nodes 1 and 2, chain 2 on node 2 alone. Node 1 is dead, and the disk of target 202 is a new one."""
    own = pb.SERVING if serving else pb.LASTSRV
    chains = [
        pb.Chain(chain_id=1, members=[pb.ChainMember(target_id=t, state=own) for t in (101, 201)]),
        pb.Chain(chain_id=2, members=[pb.ChainMember(target_id=202, state=own)]),
    ]
    reports = {
        n: [pb.TargetReport(target_id=t, store_id=5, chunks=t) for t in (n * 100 + 1, n * 100 + 2)] for n in (1, 2)
    }
    nodes = [
        pb.NodeStatus(node=pb.Node(node_id=n, address=f"h:{n}"), alive=n == 2, targets=found)
        for n, found in reports.items()
    ]
    targets = [pb.Target(target_id=t, node_id=t // 100, store_id=6 if t == 202 else 5) for t in (101, 201, 202)]
    return ClusterState(pb.GetStatusReply(chains=chains, nodes=nodes), pb.Routing(targets=targets))


def test_chains_of_a_node_and_those_that_only_it_has() -> None:
    assert chains_on(state(), [1]) == ([1], [])
    assert chains_on(state(), [2]) == ([1, 2], [2])
    assert chains_on(state(), [1, 2]) == ([1, 2], [1, 2])
    assert chains_on(state(), [9]) == ([], [])


def test_a_target_can_go_on_if_its_process_lives() -> None:
    known = state()
    assert candidates_of(known, known.chain(1)) == [Candidate(201, 2, "h:2", 201, own_store=True)]
    assert candidates_of(known, known.chain(2)) == [Candidate(202, 2, "h:2", 202, own_store=False)]
    served = state(serving=True)
    with pytest.raises(InvalidArgument, match="nothing of it is lost"):
        candidates_of(served, served.chain(1))


def test_what_is_lost_is_said_in_sentences() -> None:
    kept = candidate(201, 70)
    lost = LostFiles([LosingFile("/a\n", 3, 1)], more=2, others=1)
    assert list(lost_lines(lost, "", kept)) == [
        "/a\\n loses 1 of its 3 chunks on the chain, or has holes there",
        "and 2 more files",
        "1 other file may get older bytes in chunks that it has",
    ]
    assert list(lost_lines(LostFiles(), "", kept)) == ["target 201 has each chunk that files have on the chain"]
    assert list(lost_lines(LostFiles(), "no answer", kept)) == ["which files lose bytes cannot be told now: no answer"]
    assert lost_json(lost, "")["files"] == [{"path": "/a\n", "chunks": 3, "lacking": 1}]
    assert lost_json(LostFiles(), "no answer")["files"] is None
