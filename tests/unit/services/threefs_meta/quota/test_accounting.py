"""The arithmetic of quotas."""

from threefs_meta.quota import accounting
from threefs_meta.quota.accounting import Cost, charges_of, tree_account, user_account

from threefs.wire import meta_pb2 as pb


def file(**values: int) -> pb.Inode:
    return pb.Inode(**{"inode": 9, "type": pb.FILE, "nlink": 1, "length": 10, "uid": 5, **values})  # type: ignore[arg-type]


def test_an_inode_costs_those_that_it_names() -> None:
    assert charges_of(file()) == {}
    assert charges_of(file(tree=3)) == {tree_account(3): Cost(10, 1)}
    assert charges_of(file(tree=3, by_user=True)) == {tree_account(3): Cost(10, 1), user_account(5): Cost(10, 1)}
    assert charges_of(file(tree=3, nlink=0)) == {}, "what is removed costs nothing"
    assert charges_of(file(tree=3, type=pb.SYMLINK)) == {tree_account(3): Cost(0, 1)}


def test_accounts_say_what_they_are() -> None:
    assert accounting.is_tree(tree_account(7)) and not accounting.is_tree(user_account(7))
    assert accounting.number_of(tree_account(7)) == accounting.number_of(user_account(7)) == 7


def test_an_inode_inherits_from_its_directory_but_a_tree_of_its_own_stays() -> None:
    inode = file()
    parent = pb.Inode(inode=3, type=pb.DIRECTORY, tree=3, by_user=True)
    assert accounting.inherit(inode, parent) and (inode.tree, inode.by_user) == (3, True)
    assert not accounting.inherit(inode, parent)
    root = pb.Inode(inode=4, type=pb.DIRECTORY, tree=4)
    assert accounting.inherit(root, parent) and (root.tree, root.by_user) == (4, True)


def test_sums_travel_in_records() -> None:
    sums: dict[bytes, Cost] = {}
    for charges in ({b"a": Cost(1, 1)}, {b"a": Cost(2, 1), b"b": Cost(0, 1)}):
        accounting.add(sums, charges, 1)
    assert sums == {b"a": Cost(3, 2), b"b": Cost(0, 1)}
    accounting.add(sums, {b"b": Cost(0, 1)}, -1)
    assert accounting.from_record(accounting.to_record(sums)) == {b"a": Cost(3, 2)}
