"""Each phase of a replacement is read from the answers of the manager."""

from threefs_cli.cluster_state import ClusterState
from threefs_cli.disk_replacement import Disk, Phase, Progress, lacking_text, look, plan_text, progress_text

from threefs.wire import manager_pb2 as pb

S, O, Y = pb.SERVING, pb.OFFLINE, pb.SYNCING  # noqa: E741


def state(
    *states: "pb.PublicState",
    held: bool = False,
    stores: tuple[int, ...] = (5, 5),
    alive: bool = True,
    local: "pb.LocalState" = pb.LOCAL_UPTODATE,
    free_bytes: int = 10_000,
) -> ClusterState:
    """Chains 1 and 2, each with a target on node 1 and one on node 2, which is looked at."""
    chains = [
        pb.Chain(
            chain_id=n,
            members=[pb.ChainMember(target_id=100 + n, state=S), pb.ChainMember(target_id=200 + n, state=at)],
        )
        for n, at in enumerate(states, 1)
    ]
    nodes = [
        pb.NodeStatus(
            node=pb.Node(node_id=node, kind=pb.STORAGE, address=f"h:{node}"),
            alive=alive or node == 1,
            targets=[
                pb.TargetReport(
                    target_id=node * 100 + n,
                    used_bytes=1000 if node == 1 else 300,
                    store_id=store,
                    local_state=local,
                    free_bytes=free_bytes,
                )
                for n, store in enumerate(stores, 1)
            ],
        )
        for node in (1, 2)
    ]
    targets = [
        pb.Target(
            target_id=node * 100 + n,
            node_id=node,
            chain_id=n,
            hold=pb.HOLD_OFFLINE if held and node == 2 else pb.HOLD_NONE,
            held_store_id=5 if held and node == 2 else 0,
        )
        for node in (1, 2)
        for n in (1, 2)
    ]
    return ClusterState(pb.GetStatusReply(chains=chains, nodes=nodes), pb.Routing(targets=targets))


def test_the_phases_follow_each_other() -> None:
    assert look(state(S, S), 2).phase is Phase.IN_SERVICE
    assert look(state(O, O, held=True), 2).phase is Phase.AWAITED
    assert look(state(O, O, held=True, stores=(6, 7), alive=False), 2).phase is Phase.AWAITED
    assert look(state(O, O, held=True, stores=(6, 5)), 2).phase is Phase.AWAITED, "one store is the old one"
    assert look(state(O, O, held=True, stores=(6, 7)), 2).phase is Phase.ARRIVED
    assert look(state(S, Y), 2).phase is Phase.FILLING
    dead = look(state(O, O, alive=False), 2).phase
    assert dead is Phase.SILENT and dead.is_beginning, "it is taken out of service like one that lives"
    again = look(state(S, O, alive=False, local=pb.LOCAL_ONLINE), 2).phase
    assert again is Phase.UNFILLED and not again.is_beginning, "its process has ended while it was being filled"
    assert look(state(S, S), 9).targets == ()


def test_bytes_and_the_end_are_told() -> None:
    filling = look(state(S, Y), 2)
    assert (filling.copied_bytes, filling.total_bytes, filling.serving) == (600, 1300, 1)
    progress = Progress(100.0, 300)
    assert progress.remaining_s(filling, 100.5) is None
    assert progress.remaining_s(filling, 103.0) == 7
    assert progress_text(filling, 7) == "1 of 2 targets serve: 600 B of 1.3 KiB copied, about 7 s left"
    assert "cannot be estimated" in progress_text(filling, None)


def test_a_new_disk_that_is_too_small_is_told() -> None:
    assert look(state(O, O, held=True, stores=(6, 7), free_bytes=1400), 2).lacking_bytes == 0
    assert look(state(O, O, held=True, stores=(6, 7), free_bytes=1300), 2).lacking_bytes == 100
    assert look(state(S, Y, free_bytes=200), 2).lacking_bytes == 500
    full = look(state(S, O, free_bytes=0), 2)
    assert full.phase is Phase.FILLING and full.lacking_bytes == 700, "it had to leave, because its disk was full"
    assert "lacks 700 B" in lacking_text(full)
    assert look(state(O, O, held=True, free_bytes=0), 2).lacking_bytes == 0, "this is the old disk"


def test_what_will_be_done_is_said_before() -> None:
    found = Disk(2, (201, 202), (5, 5), Phase.IN_SERVICE, 2, 2048, 2048)
    chains = [pb.HeldChain(chain_id=7, serving=1, needed=1, members=2), pb.HeldChain(chain_id=8, serving=3, needed=1)]
    first, second, third = plan_text(found, chains, "h:2")
    assert "the 2 targets of node 2 at h:2 leave their chains; chain 7 has 1 of 2 copies then" in first
    assert "put an empty disk" in second and "room for at least 2.0 KiB" in second and "2.0 KiB are copied" in third
