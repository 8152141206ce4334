"""Mends what was judged to be wrong, in the same transaction. What is left without a name goes to /lost+found."""

from threefs.errors import AlreadyExists, Corrupt, NotADirectory
from threefs.ids import ROOT
from threefs.kv import records
from threefs.wire import meta_pb2 as pb
from threefs_meta.access.credentials import TRUSTED
from threefs_meta.context import Context
from threefs_meta.file.inode_factory import InodeSpec, new_inode
from threefs_meta.fsck.checks import Verdict, stored_inode
from threefs_meta.quota import accounting
from threefs_meta.store import entry_codec, keys
from threefs_meta.store.counters import write_counter
from threefs_meta.store.entry_codec import Entry
from threefs_meta.store.inode_numbers import BLOCK
from threefs_meta.store.namespace import Namespace, make_root

LOST_AND_FOUND = b"lost+found"
_MODE = 0o700
_TOKEN_BYTES = 16
_MOST_TRIES = 16


async def mend(context: Context, names: Namespace, verdict: Verdict) -> bool:
    """Whether it could be mended."""
    now_ns = context.clock.wall_ns()
    match verdict.kind:
        case pb.ROOT_MISSING:
            await make_root(names.tx, now_ns)
        case pb.DANGLING_ENTRY | pb.EXTRA_NAME:
            entry = Entry(verdict.inode, pb.INODE_TYPE_UNSPECIFIED)  # a count that remains is a finding of its own
            names.clear_entry(verdict.parent, verdict.name, entry, now_ns)
        case pb.NOT_COUNTED:
            names.count(*keys.subdirectory_of(verdict.key))
        case pb.QUEUED_NOTHING | pb.ATTACHED_TO_NOTHING | pb.HELD_BY_NOBODY:
            names.tx.clear(verdict.key)
        case pb.FREE_NUMBER:
            write_counter(names.tx, keys.NEXT_INODE, verdict.inode + BLOCK)
        case pb.WRONG_USAGE:
            delta = accounting.to_record({verdict.account: verdict.missing})
            names.tx.set(keys.delta(context.random.token(_TOKEN_BYTES)), records.encode(delta))
        case pb.UNREADABLE_RECORD:
            return False  # what it said is not known
        case pb.WRONG_LENGTH:
            return False  # the chains must be asked: whoever looks calls Sync
        case _:
            return await _mend_inode(context, names, verdict, now_ns)
    return True


async def _mend_inode(context: Context, names: Namespace, verdict: Verdict, now_ns: int) -> bool:
    inode = await stored_inode(names, verdict.inode)
    if verdict.kind == pb.LOST_ENTRY:
        return await _rescue(context, names, verdict, inode, now_ns)
    if not isinstance(inode, pb.Inode):
        return False
    match verdict.kind:
        case pb.WRONG_TYPE:
            names.tx.set(verdict.key, entry_codec.encode(Entry(inode.inode, inode.type)))
            names.touch(verdict.parent, now_ns)
        case pb.WRONG_PARENT:
            _place(names, inode, verdict.parent, verdict.name)
        case pb.WRONG_LINKS:
            _unqueue(names, verdict)
            inode.nlink = 1 if inode.type == pb.DIRECTORY else len(verdict.names)
            inode.ctime_ns = now_ns
            if inode.type == pb.DIRECTORY:
                _place(names, inode, *verdict.names[0])
            names.put_inode(inode)
        case pb.QUEUED_NAMED:
            _unqueue(names, verdict)
        case pb.NOT_QUEUED:
            inode.unnamed = False
            names.put_inode(inode)
            names.queue(inode, now_ns)
        case pb.ORPHAN:
            _unqueue(names, verdict)
            await _find_home(context, names, inode, now_ns)
        case pb.LOOP:
            names.clear_entry(inode.parent, inode.name, inode, now_ns)
            await _find_home(context, names, inode, now_ns)
        case _:
            return False
    return True


async def _rescue(
    context: Context, names: Namespace, verdict: Verdict, inode: pb.Inode | Corrupt | None, now_ns: int
) -> bool:
    """The directory is gone, the entry goes to /lost+found, if it names anything. A directory may have its place."""
    names.tx.clear(verdict.key)  # without times: there is no directory that could have them
    if not isinstance(inode, pb.Inode):
        return True
    if inode.type == pb.DIRECTORY and (inode.parent, inode.name) != (verdict.parent, verdict.name):
        return True
    nlink = inode.nlink
    await _find_home(context, names, inode, now_ns)
    if inode.type != pb.DIRECTORY:
        inode.nlink = nlink
        names.put_inode(inode)
    return True


def _unqueue(names: Namespace, verdict: Verdict) -> None:
    for key in verdict.queued:
        names.tx.clear(key)


def _place(names: Namespace, directory: pb.Inode, parent: int, name: bytes) -> None:
    names.discount(directory.parent, directory.inode)
    names.count(parent, directory.inode)
    directory.parent, directory.name = parent, name
    names.put_inode(directory)


async def _find_home(context: Context, names: Namespace, inode: pb.Inode, now_ns: int) -> None:
    """A name in /lost+found, made of its number. Raises NotADirectory, AlreadyExists when that is not possible."""
    directory = await _lost_and_found(context, names)
    name = b"#%d" % inode.inode
    for number in range(1, _MOST_TRIES):
        if await names.tx.get(keys.entry(directory, name)) is None:
            break
        name = b"#%d.%d" % (inode.inode, number)
    else:
        raise AlreadyExists(f"all names for inode {inode.inode} in /lost+found are taken")
    inode.nlink = 1
    inode.ctime_ns = now_ns
    if inode.type == pb.DIRECTORY:
        _place(names, inode, directory, name)
    names.put_inode(inode)
    await names.put_entry(directory, name, inode, now_ns)


async def _lost_and_found(context: Context, names: Namespace) -> int:
    entry = await names.entry(ROOT, LOST_AND_FOUND)
    if entry is not None:
        if entry.type != pb.DIRECTORY:
            raise NotADirectory("/lost+found is not a directory: move it away, so that lost files find a place")
        return entry.inode
    inode = await new_inode(context, pb.Inode(), InodeSpec(pb.DIRECTORY, TRUSTED, _MODE))
    inode.parent, inode.name = ROOT, LOST_AND_FOUND
    await names.add(ROOT, LOST_AND_FOUND, inode)
    return inode.inode
