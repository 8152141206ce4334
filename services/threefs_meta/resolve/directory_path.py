"""Where a directory is, told from its number: for people, who know directories by their paths. No error names one in
any other way, unless it has been removed."""

from threefs.ids import ROOT
from threefs.kv import records
from threefs.kv.engine_api import Transaction
from threefs.wire import meta_pb2 as pb
from threefs_meta.resolve import paths
from threefs_meta.store import keys


async def path_of(tx: Transaction, directory: int) -> bytes:
    """Of a directory, from the root; empty when it has been removed. Nothing of it is a conflict."""
    parts: list[bytes] = []
    number = directory
    while number != ROOT and len(parts) < paths.MAX_PARTS:
        key = keys.inode(number)
        value = await tx.get(key, snapshot=True)
        inode = None if value is None else records.decode(value, pb.Inode, key)
        if inode is None or not inode.nlink:
            return b""
        parts.append(inode.name)
        number = inode.parent
    return b"/" + b"/".join(reversed(parts)) if number == ROOT else b""


async def shown(tx: Transaction, directory: int) -> str:
    """For messages."""
    found = await path_of(tx, directory)
    return paths.shown(found) if found else f"inode {directory}"
