import dataclasses
from pathlib import Path

import pytest

from threefs.cluster import kept_routing
from threefs.cluster.kept_routing import KeptRouting
from threefs.errors import Corrupt, NotFound, StrangeStore
from threefs.ids import ChainId, NodeId, TableId, TargetId
from threefs.kv import records
from threefs.routing import (
    EMPTY,
    Chain,
    ChainMember,
    Node,
    NodeKind,
    PublicState,
    Routing,
    Target,
    target_to_wire,
    to_wire,
)
from threefs.wire import manager_pb2 as pb


def routing(version: int, chain_version: int = 1, **changes: object) -> Routing:
    chain = Chain(ChainId(1), chain_version, (ChainMember(TargetId(101), PublicState.SERVING),))
    node = Node(NodeId(1), NodeKind.STORAGE, "d", f"h:{version}", version)
    base = dataclasses.replace(
        EMPTY,
        version=version,
        cluster_id="c",
        nodes={node.node_id: node},
        targets={TargetId(101): Target(TargetId(101), NodeId(1), ChainId(1))},
        chains={chain.chain_id: chain},
        tables={TableId(1): (ChainId(1),)},
    )
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


def test_a_copy_is_replaced_when_the_cluster_changes_and_not_with_every_version(tmp_path: Path) -> None:
    kept = KeptRouting(tmp_path, 1)
    file = tmp_path / kept_routing.NAME
    kept.keep(routing(3))
    found = kept_routing.load(file)
    assert (found.node_id, found.routing.version, found.routing.cluster_id) == (1, 3, "c")
    kept.keep(routing(4, chain_version=2))
    assert kept_routing.load(file).routing.version == 3, "the target keeps the version of its chain itself"
    two = {TableId(1): (ChainId(1),), TableId(2): (ChainId(1),)}
    kept.keep(routing(5, tables=two))
    assert kept_routing.load(file).routing.version == 5
    kept.keep(routing(6, tables=two, default_table=TableId(2)))
    assert kept_routing.load(file).routing.version == 6
    assert [path.name for path in tmp_path.iterdir()] == [kept_routing.NAME]


def test_a_copy_says_which_targets_its_node_has(tmp_path: Path) -> None:
    assert KeptRouting(tmp_path, 1).own_targets() == []
    others = {TargetId(201): Target(TargetId(201), NodeId(2), ChainId(1))}
    KeptRouting(tmp_path, 1).keep(routing(3, targets={**routing(3).targets, **others}))
    assert KeptRouting(tmp_path, 1).own_targets() == [101]
    (tmp_path / kept_routing.NAME).write_bytes(b"damaged")
    assert KeptRouting(tmp_path, 1).own_targets() == []


def test_a_copy_says_whose_disk_it_is_on(tmp_path: Path) -> None:
    assert not KeptRouting(tmp_path, 1).is_own()
    KeptRouting(tmp_path, 1).keep(routing(3))
    assert KeptRouting(tmp_path, 1).is_own() and not KeptRouting(tmp_path, 2).is_own()
    (tmp_path / kept_routing.NAME).write_bytes(b"damaged")
    assert not KeptRouting(tmp_path, 1).is_own()


def test_a_copy_goes_on_naming_a_target_that_has_a_store_here_and_that_the_routing_lacks(tmp_path: Path) -> None:
    """It is of a restored manager, which asks for such targets, also after the next start of this process."""
    kept = KeptRouting(tmp_path, 1)
    kept.keep(routing(3), held=[101])
    kept.keep(routing(9 << 32, targets={}), held=[101])
    assert KeptRouting(tmp_path, 1).own_targets() == [101]
    found = kept_routing.load(tmp_path / kept_routing.NAME).routing
    assert found.version == 9 << 32 and not found.targets, "a manager made from it would have its store deleted"
    kept.keep(routing(10 << 32, targets={}), held=[])
    assert KeptRouting(tmp_path, 1).own_targets() == [], "it was set aside"


def test_a_copy_names_the_targets_that_come_while_the_routing_lacks_one_that_is_here(tmp_path: Path) -> None:
    """It stayed as it was as long as a store lay there that could not be read, and its node forgot all that came."""
    came = {TargetId(102): Target(TargetId(102), NodeId(1), ChainId(1))}
    KeptRouting(tmp_path, 1).keep(routing(3), held=[101])
    for version, targets in enumerate(({}, came, came, {}), 4):
        held = [101, 102] if version > 4 else [101]
        KeptRouting(tmp_path, 1).keep(routing(version, targets=targets), held=held)
        assert sorted(KeptRouting(tmp_path, 1).own_targets()) == held
    KeptRouting(tmp_path, 1).keep(routing(9), held=[101, 102])
    assert sorted(KeptRouting(tmp_path, 1).own_targets()) == [101, 102], "one of them is named again"


FAR = Target(TargetId(901), NodeId(2), ChainId(1))


@pytest.mark.parametrize("restarted", [False, True])
def test_a_copy_never_forgets_the_highest_number_of_a_target(restarted: bool, tmp_path: Path) -> None:
    """A restored manager gave it to a new target, which took the store that lies on a disk still for its own."""
    kept = KeptRouting(tmp_path, 1)
    kept.keep(routing(3, targets={**routing(3).targets, FAR.target_id: FAR}))
    for version in (4, 5):
        if restarted:
            kept = KeptRouting(tmp_path, 1)
            kept.check(routing(version))
            assert kept.highest_target == 901
        kept.keep(routing(version))
        found = kept_routing.load(tmp_path / kept_routing.NAME)
        assert [target.target_id for target in found.routing.targets] == [101] and not found.unnamed
        assert kept.highest_target == kept_routing.highest_target(found) == 901


@pytest.mark.parametrize("named", [True, False])
def test_the_copy_of_an_older_release_knows_the_targets_that_it_names(named: bool, tmp_path: Path) -> None:
    copy = pb.KeptRouting(node_id=1, routing=to_wire(routing(3)))
    (copy.routing.targets if named else copy.unnamed).append(target_to_wire(FAR))
    (tmp_path / kept_routing.NAME).write_bytes(records.encode(copy))
    kept = KeptRouting(tmp_path, 1)
    kept.keep(routing(4))
    assert kept.highest_target == kept_routing.load(tmp_path / kept_routing.NAME).highest_target == 901


def test_a_number_that_no_cluster_reaches_hides_no_other_one() -> None:
    """A manager that is made from the copy went on behind it, where there are no numbers."""
    broken = pb.KeptRouting(highest_target=(1 << 32) - 1, unnamed=[target_to_wire(FAR)])
    assert kept_routing.highest_target(broken) == 901


def test_a_routing_that_lacks_a_table_of_the_copy_is_refused(tmp_path: Path) -> None:
    """Whoever made it gives the numbers of the lost chains away again."""
    two = {TableId(1): (ChainId(1),), TableId(2): (ChainId(1),)}
    KeptRouting(tmp_path, 1).keep(routing(3, tables=two))
    running = KeptRouting(tmp_path, 1)
    running.keep(routing(4, tables=two))
    for kept in (KeptRouting(tmp_path, 1), running):
        for act in (kept.check, kept.keep):
            with pytest.raises(StrangeStore, match="lacks chain table 2"):
                act(routing(9 << 32))
            with pytest.raises(StrangeStore, match="lacks chain table 2"):
                act(routing(9 << 32, tables=two | {TableId(2): (ChainId(7),)}))
        kept.check(routing(9, tables=two | {TableId(3): (ChainId(1),)}))
        kept.check(routing(1, cluster_id="another", tables={}))
    assert kept_routing.load(tmp_path / kept_routing.NAME).routing.version == 4
    (tmp_path / kept_routing.NAME).write_bytes(b"damaged")
    KeptRouting(tmp_path, 1).keep(routing(9))


def test_a_disk_that_takes_no_copy_is_tried_again(tmp_path: Path) -> None:
    kept = KeptRouting(tmp_path / "later", 1)
    kept.keep(routing(3))
    (tmp_path / "later").mkdir()
    kept.keep(routing(4))
    assert kept_routing.load(tmp_path / "later" / kept_routing.NAME).routing.version == 4


@pytest.mark.parametrize("reads_first", [False, True])
def test_a_copy_whose_disk_is_away_is_not_made_in_the_empty_mount_point(reads_first: bool, tmp_path: Path) -> None:
    """It said that the disk is there, and all its stores gone."""
    place, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    place.mkdir()
    kept = KeptRouting(place, 1)
    kept.keep(routing(3))
    if reads_first:
        kept = KeptRouting(place, 1)
        kept.check(routing(3))
    place.rename(elsewhere)
    place.mkdir()
    kept.keep(routing(4, targets={}))
    assert not list(place.iterdir())
    place.rmdir()
    elsewhere.rename(place)
    kept.keep(routing(5, targets={}))
    assert kept_routing.load(place / kept_routing.NAME).routing.version == 5


def test_a_copy_that_is_missing_or_damaged_is_named(tmp_path: Path) -> None:
    file = tmp_path / kept_routing.NAME
    with pytest.raises(NotFound, match=f"there is no {file}"):
        kept_routing.load(file)
    KeptRouting(tmp_path, 1).keep(routing(3))
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(Corrupt, match=f"{file} is damaged"):
        kept_routing.load(file)
