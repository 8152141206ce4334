"""The keys of metadata: a prefix, then big-endian integers of fixed width, then a name. A directory's entries are a
range.

Functions with `_of` read a key, the others make one. Functions that return two keys return a range.
"""

import struct
from collections.abc import Iterable

_ONE = struct.Struct(">5sQ")
_TWO = struct.Struct(">5sQQ")
_LAST_NUMBER = (1 << 64) - 1

INODES = (b"INOD|", b"INOD}")
ENTRIES = (b"DENT|", b"DENT}")
TIMES = (b"TIME|", b"TIME}")
SESSIONS = (b"SESS|", b"SESS}")
REPLAYS = (b"IDEM|", b"IDEM}")
REMOVALS = (b"GCIN|", b"GCIN}")
CLIENTS = (b"CLIE|", b"CLIE}")
RENEWALS = (b"BEAT|", b"BEAT}")
ENDED = (b"ENDL|", b"ENDL}")
HOLDS = (b"HOLD|", b"HOLD}")
XATTRS = (b"XATT|", b"XATT}")
USAGE = (b"QUSE|", b"QUSE}")
LIMITS = (b"QLIM|", b"QLIM}")
DELTAS = (b"QDLT|", b"QDLT}")
RETAGS = (b"QTAG|", b"QTAG}")
LOCKS = (b"LOCK|", b"LOCK}")
TRASH = (b"TRSH|", b"TRSH}")
WAITS = (b"WAIT|", b"WAIT}")
TRUNCATION_MARKS = (b"CUTS|", b"CUTS}")
#: Tables of records that belong to an inode. Their keys begin with its number.
ATTACHED = (HOLDS, LOCKS, SESSIONS, TIMES, XATTRS)

STORE = b"CONF|store"
FORMAT = b"CONF|format"
NEXT_INODE = b"CONF|next_inode"
REMOVED_INODES = b"CONF|removed_inodes"
TICK = b"CONF|tick"
STARTS = b"CONF|starts"
LAST_LEASE = b"CONF|last_lease"
TRASH_USED = b"CONF|trash_used"

NAME_AT = _ONE.size  # in the key of an entry
CLIENT_BYTES = 16
SESSION_BYTES = 16


def inode(number: int) -> bytes:
    return _ONE.pack(b"INOD|", number)


def inodes(numbers: Iterable[int]) -> list[bytes]:
    """The keys of many inodes."""
    pack = _ONE.pack
    return [pack(b"INOD|", number) for number in numbers]


def entry(parent: int, name: bytes) -> bytes:
    """The key begins with that of an empty name."""
    return _ONE.pack(b"DENT|", parent) + name


def entries(parent: int, after: bytes = b"") -> tuple[bytes, bytes]:
    """The entries of a directory whose names come after `after`."""
    begin = _ONE.pack(b"DENT|", parent)
    return begin + after + b"\0" if after else begin, _ONE.pack(b"DENT|", parent + 1)


def names_of(entry_keys: Iterable[bytes]) -> list[bytes]:
    """The names of many entries."""
    start = _ONE.size
    return [key[start:] for key in entry_keys]


def entry_of(key: bytes) -> tuple[int, bytes]:
    """(parent, name)"""
    return _number(key), key[_ONE.size :]


def times(directory: int) -> bytes:
    return _ONE.pack(b"TIME|", directory)


def directory_facts(directory: int) -> tuple[bytes, bytes]:
    """The records of a directory besides its inode: its times, then one key per subdirectory."""
    return times(directory), times(directory + 1)


def subdirectory(directory: int, inode: int) -> bytes:
    return _TWO.pack(b"TIME|", directory, inode)


def is_subdirectory(fact_key: bytes) -> bool:
    return len(fact_key) == _TWO.size


def subdirectory_of(fact_key: bytes) -> tuple[int, int]:
    """(directory, subdirectory)"""
    _, directory, inode = _TWO.unpack(fact_key)
    return directory, inode


def xattr(inode: int, name: bytes) -> bytes:
    return _ONE.pack(b"XATT|", inode) + name


def xattrs(inode: int) -> tuple[bytes, bytes]:
    return _ONE.pack(b"XATT|", inode), _ONE.pack(b"XATT|", inode + 1)


def xattr_of(key: bytes) -> tuple[int, bytes]:
    """(inode, name)"""
    return _number(key), key[_ONE.size :]


def session(inode: int, session_id: bytes) -> bytes:
    return _ONE.pack(b"SESS|", inode) + session_id


def session_of(session_key: bytes) -> bytes:
    return session_key[_ONE.size :]


def sessions(inode: int) -> tuple[bytes, bytes]:
    return _ONE.pack(b"SESS|", inode), _ONE.pack(b"SESS|", inode + 1)


def client(client_id: bytes) -> bytes:
    return CLIENTS[0] + client_id


def renewal(client_id: bytes) -> bytes:
    return RENEWALS[0] + client_id


def client_of(renewal_key: bytes) -> bytes:
    return renewal_key[len(RENEWALS[0]) :]


def ended(lease: int) -> bytes:
    return _ONE.pack(b"ENDL|", lease)


def lease_of(ended_key: bytes) -> int:
    return _number(ended_key)


def lock(inode: int, client_id: bytes) -> bytes:
    """All locks of the client on the inode."""
    return _ONE.pack(b"LOCK|", inode) + client_id


def locks(inode: int) -> tuple[bytes, bytes]:
    """Also of an inode that does not exist, as only callers know it."""
    return _ONE.pack(b"LOCK|", inode), _ONE.pack(b"LOCK|", inode + 1) if inode < _LAST_NUMBER else LOCKS[1]


def client_of_lock(lock_key: bytes) -> bytes:
    return lock_key[_ONE.size :]


def wait(client_id: bytes, owner: int) -> bytes:
    """The lock for which this owner waits."""
    return WAITS[0] + client_id + owner.to_bytes(8, "big")


def client_of_wait(wait_key: bytes) -> bytes:
    return wait_key[len(WAITS[0]) :][:CLIENT_BYTES]


def truncation_mark(inode: int) -> bytes:
    """The file is being truncated."""
    return _ONE.pack(b"CUTS|", inode)


def hold(inode: int, client_id: bytes) -> bytes:
    return _ONE.pack(b"HOLD|", inode) + client_id


def client_of_hold(hold_key: bytes) -> bytes:
    return hold_key[_ONE.size :]


def holds(inode: int) -> tuple[bytes, bytes]:
    return _ONE.pack(b"HOLD|", inode), _ONE.pack(b"HOLD|", inode + 1)


def usage(account: bytes) -> bytes:
    """`account` is that of a tree or a user, see `quota/accounting.py`."""
    return USAGE[0] + account


def limits(account: bytes) -> bytes:
    return LIMITS[0] + account


def account_of(usage_or_limits_key: bytes) -> bytes:
    return usage_or_limits_key[len(USAGE[0]) :]


def delta(tick: int, token: bytes) -> bytes:
    """Services of earlier releases draw the tick, too."""
    return _ONE.pack(b"QDLT|", tick) + token


def deltas(first: int) -> tuple[bytes, bytes]:
    """Those of a tick, and of all later ones."""
    return _ONE.pack(b"QDLT|", first), DELTAS[1]


def tick_of_delta(delta_key: bytes) -> int:
    return _number(delta_key)


def trashed(due: int, directory: int, name: bytes) -> bytes:
    """`due` is the first tick in which the entry may be removed from the trash."""
    return _TWO.pack(b"TRSH|", due, directory) + name


def trashed_until(due: int, first: int = 0) -> tuple[bytes, bytes]:
    """The entries that may be removed in this tick, and since the first one."""
    return _ONE.pack(b"TRSH|", first), _ONE.pack(b"TRSH|", due + 1)


def trashed_at(trash_key: bytes) -> tuple[int, int, bytes]:
    """(due, directory, name)"""
    _, due, directory = _TWO.unpack_from(trash_key)
    return due, directory, trash_key[_TWO.size :]


def retag(directory: int) -> bytes:
    return _ONE.pack(b"QTAG|", directory)


def replay(client: bytes, request: int) -> bytes:
    return b"IDEM|%b%b" % (client, request.to_bytes(8, "big"))


def after_client(replay_key: bytes) -> bytes:
    """The first key behind the replays of the same client."""
    client = int.from_bytes(replay_key[5 : 5 + CLIENT_BYTES], "big") + 1
    return REPLAYS[1] if client >> (8 * CLIENT_BYTES) else b"IDEM|" + client.to_bytes(CLIENT_BYTES, "big")


def removal(due: int, inode: int) -> bytes:
    """`due` is the first tick in which the inode may be freed."""
    return _TWO.pack(b"GCIN|", due, inode)


def removals(due: int, first: int = 0) -> tuple[bytes, bytes]:
    """The removals of inodes that may be freed in this tick, and since the first one."""
    return _ONE.pack(b"GCIN|", first), _ONE.pack(b"GCIN|", due + 1)


def removed_inode(removal_key: bytes) -> int:
    number: int = _TWO.unpack(removal_key)[2]
    return number


def removals_from(first: int) -> tuple[bytes, bytes]:
    """Those of a tick, and of all later ones."""
    return _ONE.pack(b"GCIN|", first), REMOVALS[1]


def due_of_removal(removal_key: bytes) -> int:
    due: int = _TWO.unpack(removal_key)[1]
    return due


def inode_of(key: bytes) -> int:
    """The inode of any key that begins with its number."""
    return _number(key)


def _number(key: bytes) -> int:
    number: int = _ONE.unpack_from(key)[1]
    return number
