"""Repairs problems in the transaction that has found them. An inode without a name goes to /lost+found."""

from threefs.errors import AlreadyExists, Corrupt, NotADirectory
from threefs.ids import ROOT
from threefs.kv import records
from threefs.wire import meta_pb2 as pb
from threefs_meta.access.credentials import TRUSTED
from threefs_meta.context import Context
from threefs_meta.file.inode_factory import InodeSpec, new_inode
from threefs_meta.fsck.checks import Problem, read_inode
from threefs_meta.quota import accounting
from threefs_meta.store import entry_codec, keys
from threefs_meta.store.counters import raise_to
from threefs_meta.store.entry_codec import Entry
from threefs_meta.store.inode_numbers import BLOCK
from threefs_meta.store.namespace import Namespace, is_freed, make_root

LOST_AND_FOUND = b"lost+found"
_MODE = 0o700
_TOKEN_BYTES = 8
_MAX_TRIES = 16
#: Tables whose damaged records are dropped: a sum is counted anew, and a client that waits for a lock asks again.
_DISPENSABLE = (keys.USAGE, keys.WAITS)


async def repair(context: Context, ns: Namespace, problem: Problem) -> bool:
    """Returns whether the problem could be repaired."""
    now_ns = context.clock.wall_ns()
    match problem.kind:
        case pb.ROOT_MISSING:
            await make_root(ns.tx, now_ns)
        case pb.DANGLING_ENTRY | pb.EXTRA_NAME:
            entry = Entry(problem.inode, pb.INODE_TYPE_UNSPECIFIED)  # a wrong count is a problem of its own
            ns.clear_entry(problem.parent, problem.name, entry, now_ns)
        case pb.NOT_COUNTED:
            ns.add_subdir_link(*keys.subdirectory_of(problem.key))
        case pb.QUEUED_NOTHING | pb.ATTACHED_TO_NOTHING | pb.HELD_BY_NOBODY:
            ns.tx.clear(problem.key)
        case pb.FREE_NUMBER:
            await raise_to(ns.tx, keys.NEXT_INODE, problem.inode + BLOCK)
        case pb.WRONG_USAGE:
            delta = accounting.to_record({problem.account: problem.missing})
            ns.tx.set(keys.delta(ns.stamp, context.random.token(_TOKEN_BYTES)), records.encode(delta))
        case pb.UNREADABLE_RECORD if any(begin <= problem.key < end for begin, end in _DISPENSABLE):
            ns.tx.clear(problem.key)
        case pb.UNREADABLE_RECORD:
            return False  # nobody knows what the record said
        case pb.WRONG_LENGTH:
            return False  # the chains must be asked: `threefs fsck` calls Sync
        case _:
            return await _repair_inode(context, ns, problem, now_ns)
    return True


async def _repair_inode(context: Context, ns: Namespace, problem: Problem, now_ns: int) -> bool:
    inode = await read_inode(ns, problem.inode)
    if problem.kind == pb.LOST_ENTRY:
        return await _reconnect_lost_entry(context, ns, problem, inode, now_ns)
    if not isinstance(inode, pb.Inode):
        return False
    match problem.kind:
        case pb.WRONG_TYPE:
            ns.tx.set(problem.key, entry_codec.encode(Entry(inode.inode, inode.type)))
            ns.mark_changed(problem.parent, now_ns)
        case pb.WRONG_PARENT:
            _set_parent(ns, inode, problem.parent, problem.name)
        case pb.WRONG_LINKS:
            assert problem.names, "an inode without names is an orphan"
            assert not is_freed(inode), "an inode that is being freed gets no name back"
            _dequeue(ns, problem)
            inode.unnamed = inode.freed = False
            inode.nlink = 1 if inode.type == pb.DIRECTORY else len(problem.names)
            inode.ctime_ns = now_ns
            if inode.type == pb.DIRECTORY:
                _set_parent(ns, inode, *problem.names[0])
            ns.put_inode(inode)
        case pb.QUEUED_NAMED:
            _dequeue(ns, problem)
        case pb.NOT_QUEUED:
            inode.unnamed = False
            ns.put_inode(inode)
            ns.queue_removal(inode, now_ns)
        case pb.ORPHAN:
            _dequeue(ns, problem)
            await _reconnect(context, ns, inode, now_ns)
        case pb.LOOP:
            ns.clear_entry(inode.parent, inode.name, inode, now_ns)
            await _reconnect(context, ns, inode, now_ns)
        case _:
            return False
    return True


async def _reconnect_lost_entry(
    context: Context, ns: Namespace, problem: Problem, inode: pb.Inode | Corrupt | None, now_ns: int
) -> bool:
    """The entry of a directory that is gone moves to /lost+found, if it names an inode that has no other place."""
    ns.tx.clear(problem.key)  # without new times: the directory is gone
    if not isinstance(inode, pb.Inode) or is_freed(inode):
        return True
    if inode.type == pb.DIRECTORY and (inode.parent, inode.name) != (problem.parent, problem.name):
        return True
    nlink = inode.nlink
    await _reconnect(context, ns, inode, now_ns)
    if inode.type != pb.DIRECTORY:
        inode.nlink = nlink
        ns.put_inode(inode)
    return True


def _dequeue(ns: Namespace, problem: Problem) -> None:
    for key in problem.queued:
        ns.tx.clear(key)


def _set_parent(ns: Namespace, directory: pb.Inode, parent: int, name: bytes) -> None:
    ns.remove_subdir_link(directory.parent, directory.inode)
    ns.add_subdir_link(parent, directory.inode)
    directory.parent, directory.name = parent, name
    ns.put_inode(directory)


async def _reconnect(context: Context, ns: Namespace, inode: pb.Inode, now_ns: int) -> None:
    """Give an inode a name in /lost+found, made of its number. Raises NotADirectory or AlreadyExists if it cannot have
    one."""
    directory = await _lost_and_found(context, ns)
    if directory == inode.inode:
        raise NotADirectory("/lost+found lies below itself: run the repair again, which gives it back its place")
    assert not is_freed(inode), "an inode that is being freed gets no name back"
    name = b"#%d" % inode.inode
    for number in range(1, _MAX_TRIES):
        if await ns.tx.get(keys.entry(directory, name)) is None:
            break
        name = b"#%d.%d" % (inode.inode, number)
    else:
        raise AlreadyExists(f"all {_MAX_TRIES} names for inode {inode.inode} in /lost+found are taken: move files away")
    inode.nlink, inode.unnamed, inode.freed = 1, False, False
    inode.ctime_ns = now_ns
    if inode.type == pb.DIRECTORY:
        _set_parent(ns, inode, directory, name)
    ns.put_inode(inode)
    await ns.put_entry(directory, name, inode, now_ns)


async def _lost_and_found(context: Context, ns: Namespace) -> int:
    entry = await ns.entry(ROOT, LOST_AND_FOUND)
    if entry is not None:
        if entry.type != pb.DIRECTORY:
            raise NotADirectory("/lost+found is not a directory: move it away, then check again")
        return entry.inode
    inode = await new_inode(context, ns, pb.Inode(), InodeSpec(pb.DIRECTORY, TRUSTED, _MODE))
    inode.parent, inode.name = ROOT, LOST_AND_FOUND
    await ns.add(ROOT, LOST_AND_FOUND, inode)
    return inode.inode
