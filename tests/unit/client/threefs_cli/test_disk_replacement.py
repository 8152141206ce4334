"""Each phase of a replacement is read from the answers of the manager."""

from threefs_cli.cluster_state import ClusterState
from threefs_cli.disk_replacement import Disk, Phase, Progress, lacking_text, look, plan_text, progress_text

from threefs.wire import manager_pb2 as pb

S, O, Y, L = pb.SERVING, pb.OFFLINE, pb.SYNCING, pb.LASTSRV  # noqa: E741


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
    assert look(state(O, O, held=True, stores=(6, 0)), 2).phase is Phase.AWAITED, "one store cannot be opened"
    assert look(state(O, O, held=True, stores=(6, 7)), 2).phase is Phase.ARRIVED
    assert look(state(S, Y), 2).phase is Phase.FILLING
    dead = look(state(O, O, alive=False), 2).phase
    assert dead is Phase.SILENT and dead.is_beginning, "it is taken out of service like one that lives"
    again = look(state(S, O, alive=False, local=pb.LOCAL_ONLINE), 2).phase
    assert again is Phase.UNFILLED and not again.is_beginning, "its process has ended while it was being filled"
    assert look(state(S, S), 9).targets == ()


def test_an_empty_store_in_the_place_of_a_damaged_one_is_no_new_disk() -> None:
    """The hold came before the store was reported, and knows the damaged one: the old disk was filled and served."""
    known = state(O, O, held=True, stores=(6, 7))
    known.reports[202].replaces_damaged = True
    assert look(known, 2).phase is Phase.AWAITED


def test_a_disk_whose_damaged_store_is_being_filled_again_is_replaced() -> None:
    """The command said that a replacement is under way, followed the filling of the old disk, and ended."""
    for known, phase in (
        (state(S, Y), Phase.REFILLING),
        (state(Y, Y), Phase.REFILLING),  # the process has just started, and found the damage then
        (state(S, O, alive=False, local=pb.LOCAL_ONLINE), Phase.SILENT),
        (state(S, S), Phase.IN_SERVICE),
    ):
        known.reports[202].replaces_damaged = True
        found = look(known, 2)
        assert found.phase is phase and found.phase.is_beginning
    known = state(S, Y, free_bytes=200)
    known.reports[202].replaces_damaged = True
    assert look(known, 2).lacking_bytes == 500
    first, *steps = plan_text(look(known, 2), [], "h:2")
    assert "the place of a damaged one is filled, on the disk that node 2 has" in first and len(steps) == 3


def test_a_disk_is_out_of_service_only_when_no_target_of_it_is_in_use() -> None:
    """A person was told to take out a disk that served, perhaps alone."""
    for states in ((S, O), (Y, O), (L, O)):
        needed = look(state(*states, held=True), 2).phase
        assert needed is Phase.NEEDED and not needed.is_beginning
        assert look(state(*states, held=True, stores=(6, 7)), 2).phase is Phase.NEEDED
    for states in ((O, S), (O, O)):
        known = state(*states, held=True)
        known.routing.targets[-1].hold = pb.HOLD_NONE
        partial = look(known, 2).phase
        assert partial is Phase.PARTIAL and partial.is_beginning, "the others are taken out as well, if they may be"


def test_a_disk_that_has_failed_under_a_living_process_is_replaced() -> None:
    """The command waited for it to be filled."""
    known = state(S, O, local=pb.LOCAL_OFFLINE)
    report = known.reports[202]
    report.failure, report.read_only = "the disk is full", True
    assert look(known, 2).phase is Phase.FILLING
    report.failure, report.read_only = "the disk has failed", False
    failed = look(known, 2).phase
    assert failed is Phase.FAILED and failed.is_beginning


def test_moves_to_and_from_a_disk_are_no_replacement() -> None:
    """The command said that one is under way, and ended when the move was done."""
    comes, goes = state(S, Y), state(S, O)
    comes.status.moves.add(chain_id=2, added_target=202, added_node=2)
    goes.status.chains[1].members[1].leaving = True
    for known in (comes, goes):
        found = look(known, 2)
        assert (found.phase, found.serving, found.targets) == (Phase.IN_SERVICE, 1, (201, 202))
        assert found.copied_bytes == found.total_bytes == 300
    comes.routing.targets[-2].hold = pb.HOLD_OFFLINE
    held = ClusterState(comes.status, comes.routing)
    assert look(held, 2).phase is Phase.PARTIAL, "it would serve on the disk that is taken out"


def test_another_disk_is_known_by_what_its_targets_keep() -> None:
    def keeping(**stores: int) -> Disk:
        kept = {int(target[1:]): store for target, store in stores.items()}
        return Disk(2, tuple(kept), kept, Phase.IN_SERVICE, 2, 0, 0)

    before = keeping(t201=5, t202=5)
    assert not keeping(t202=5, t203=7).is_new_since(before), "a move has taken one away, and another has added one"
    assert keeping(t201=6, t202=6).is_new_since(before)


def test_a_store_that_replaces_a_damaged_one_makes_no_other_disk() -> None:
    """It was replaced while the question waited for its answer; nothing was taken out of service then."""

    def keeping(*stores: int, replacements: tuple[int, ...] = ()) -> Disk:
        known = state(S, S, stores=stores)
        for target in known.routing.targets:
            target.store_id = known.reports[target.target_id].store_id
        for target_id in replacements:
            known.reports[target_id].replaces_damaged = True
        return look(known, 2)

    old, damaged = keeping(5, 5), keeping(5, 9, replacements=(202,))
    assert not damaged.is_new_since(old)
    assert keeping(6, 7).is_new_since(damaged), "such a disk can be replaced, too"
    assert keeping(6, 9, replacements=(202,)).is_new_since(old), "a store of the new disk was damaged"


def test_bytes_and_the_end_are_told() -> None:
    filling = look(state(S, Y), 2)
    assert (filling.copied_bytes, filling.total_bytes, filling.serving) == (600, 1300, 1)
    progress = Progress(100.0, 300)
    assert progress.remaining_s(filling, 100.5) is None
    assert progress.remaining_s(filling, 103.0) == 7
    assert progress_text(filling, 7) == "1 of 2 targets serve: 600 B of 1.3 KiB copied, about 7 s left"
    assert "cannot be estimated" in progress_text(filling, None)
    lost = state(S, L)
    lost.status.chains[1].members[0].state = L
    waits = look(lost, 2)
    assert waits.phase is Phase.FILLING and waits.copied_bytes == waits.total_bytes == 300
    assert progress.remaining_s(waits, 103.0) is None, "it may wait for another node"
    assert progress.remaining_s(look(state(S, S), 2), 103.0) == 0


def test_a_new_disk_that_is_too_small_is_told() -> None:
    assert look(state(O, O, held=True, stores=(6, 7), free_bytes=1400), 2).lacking_bytes == 0
    assert look(state(O, O, held=True, stores=(6, 7), free_bytes=1300), 2).lacking_bytes == 100
    assert look(state(S, Y, free_bytes=200), 2).lacking_bytes == 500
    full = look(state(S, O, free_bytes=0), 2)
    assert full.phase is Phase.FILLING and full.lacking_bytes == 700, "it had to leave, because its disk was full"
    assert "lacks 700 B" in lacking_text(full)
    assert look(state(O, O, held=True, free_bytes=0), 2).lacking_bytes == 0, "this is the old disk"


def test_what_will_be_done_is_said_before() -> None:
    found = Disk(2, (201, 202), {201: 5, 202: 5}, Phase.IN_SERVICE, 2, 2048, 2048)
    chains = [pb.HeldChain(chain_id=7, serving=1, needed=1, members=2), pb.HeldChain(chain_id=8, serving=3, needed=1)]
    first, second, third = plan_text(found, chains, "h:2")
    assert "the 2 targets of node 2 at h:2 leave their chains; chain 7 has 1 of 2 copies then" in first
    assert "put an empty disk" in second and "room for at least 2.0 KiB" in second and "2.0 KiB are copied" in third
