"""Write sessions: the records that a client has a file open for writing, each under the lease of its client.

A file whose last name is gone exists until its last write session ends. A write session ends when its client closes the
file, or with the lease of the client (`lease/lease_reaper.py`).
"""

from threefs.errors import InvalidArgument, SessionLost
from threefs.kv import records
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import WriteSession
from threefs_meta.context import Context
from threefs_meta.lease import leases
from threefs_meta.store import keys
from threefs_meta.store.namespace import Namespace


def check_id(session: bytes) -> None:
    """Raise InvalidArgument unless this can be the name of a session. Empty means none."""
    if session and len(session) != keys.SESSION_BYTES:
        raise InvalidArgument(f"a write session is named by {keys.SESSION_BYTES} bytes, not {len(session)}")


async def require(ns: Namespace, inode: pb.Inode | None, session: bytes, number: int) -> pb.Inode:
    """The inode, whose number is given too. Raises SessionLost unless the file exists and the session stands."""
    if inode is None or await ns.tx.get(keys.session(number, session)) is None:
        raise lost(number)
    return inode


def lost(inode: int) -> SessionLost:
    return SessionLost(f"inode {inode} is not open under this write session; open the file again")


async def require_leased(ns: Namespace, inode: int, session: bytes, client: bytes, shown: str) -> None:
    """Raise SessionLost unless the session stands under the present lease of its client."""
    key = keys.session(inode, session)
    value = await ns.tx.get(key)
    lease = 0 if value is None else records.decode(value, WriteSession, key).lease
    if not lease or lease != await leases.current(ns.tx, client):
        raise SessionLost(f"{shown} is not open under this write session; open it again")


async def is_open_for_writing(ns: Namespace, inode: int) -> bool:
    return bool(await ns.tx.get_range(*keys.sessions(inode), limit=1))


async def is_open(ns: Namespace, inode: int) -> bool:
    """Whether a client has the file open for writing, or has reported that it has it open for reading."""
    return await is_open_for_writing(ns, inode) or bool(await ns.tx.get_range(*keys.holds(inode), limit=1))


async def chains_used(context: Context, ns: Namespace, file: pb.Inode) -> int:
    """On how many chains of its stripe the file can lie, counted from the first; 0 means on any.

    A writer that has it open may have reached further. A session that begins after this read is a conflict.
    """
    used = chains_used_by_record(context, file)
    return 0 if used and await is_open_for_writing(ns, file.inode) else used


def chains_used_by_record(context: Context, file: pb.Inode) -> int:
    """The same for a file that nobody has open for writing. The record of a file from before the last restore may be
    older than its chunks."""
    return file.chains_used if file.inode >= context.first_inode() else 0


async def begin(ns: Namespace, inode: int, session: bytes, client: bytes, now_ns: int) -> int:
    """Returns the number of the client's lease, with which the session ends."""
    lease = 0 if ns.memo is None else ns.memo.lease
    if not lease:
        lease = await leases.ensure(ns.tx, client, ns.stamp)
        if ns.memo is not None:
            ns.memo.lease = lease
    assert lease, "a write session stands under a lease"
    assert len(session) == keys.SESSION_BYTES, "the name of a session was checked"
    record = WriteSession(client=client, opened_ns=now_ns, lease=lease)
    ns.tx.set(keys.session(inode, session), records.encode(record))
    return lease


async def end(ns: Namespace, inode: pb.Inode, session: bytes, now_ns: int) -> None:
    """End a session. A file without a name that its sessions have kept is queued for removal with its last one.

    The caller has stored everything that it changed of the inode.
    """
    ns.tx.clear(keys.session(inode.inode, session))
    assert not inode.unnamed or not inode.nlink, "a file that only its sessions keep has no name"
    if inode.unnamed and not await is_open_for_writing(ns, inode.inode):
        inode.unnamed = False
        inode.ctime_ns = now_ns  # a check of the queue sees by this that the inode has come into it since
        ns.put_inode(inode)
        ns.queue_removal(inode, now_ns)
