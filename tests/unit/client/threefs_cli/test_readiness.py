from threefs_cli.readiness import incomplete_chains, unready_chains

from threefs.wire import manager_pb2 as pb


def status(*states: "pb.PublicState", min_replicas: int = 2) -> pb.GetStatusReply:
    """A chain of targets that all have said that they are up to date."""
    members = [pb.ChainMember(target_id=number, state=state) for number, state in enumerate(states, 1)]
    nodes = [
        pb.NodeStatus(
            alive=True,
            targets=[pb.TargetReport(target_id=member.target_id, local_state=pb.LOCAL_UPTODATE, chain_version=4)],
        )
        for member in members
    ]
    table = pb.ChainTable(table_id=1, chains=[7], min_replicas=min_replicas)
    return pb.GetStatusReply(chains=[pb.Chain(chain_id=7, version=4, members=members)], nodes=nodes, tables=[table])


def test_a_chain_is_ready_when_enough_targets_serve_and_whole_when_all_do() -> None:
    whole = status(pb.SERVING, pb.SERVING, pb.SERVING)
    assert not unready_chains(whole) and not incomplete_chains(whole)
    enough = status(pb.SERVING, pb.SERVING, pb.SYNCING)
    assert not unready_chains(enough) and incomplete_chains(enough) == [7]
    assert unready_chains(status(pb.SERVING, pb.SYNCING, pb.OFFLINE)) == [7]
    assert not unready_chains(status(pb.SERVING, pb.OFFLINE, pb.OFFLINE, min_replicas=0)), "0 means 1"


def test_a_target_serves_only_when_it_has_said_so_in_the_newest_version_of_its_chain() -> None:
    for what, value in (("chain_version", 3), ("local_state", pb.LOCAL_ONLINE), ("target_id", 9)):
        found = status(pb.SERVING, pb.SERVING, pb.SERVING)
        setattr(found.nodes[2].targets[0], what, value)
        assert unready_chains(found) == incomplete_chains(found) == [7], what
    found = status(pb.SERVING, pb.SERVING, pb.SERVING)
    found.nodes[0].alive = False
    assert unready_chains(found) == [7]
