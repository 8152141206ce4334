"""What a service says of the disk of its embedded store. Once that is full no name and no chain can change, and people
must hear of it while the service still answers."""

import os

from threefs.errors import NoSpace
from threefs.kv.recovering_engine import RecoveringEngine
from threefs.kv.rocksdb_store import needed_bytes
from threefs.wire import common_pb2 as pb


def removals_only(engine: object) -> bool:
    """Whether the rest of the disk of an embedded store is the reserve for removals."""
    return isinstance(engine, RecoveringEngine) and engine.removals_only


def check_growth(engine: object) -> None:
    """Before something is added to the store. Raises NoSpace if the disk has room for removals only."""
    if removals_only(engine):
        raise NoSpace("the disk of this service has room only for removals")


def describe(engine: object) -> pb.StoreDisk | None:
    """None if the engine has no store on a disk of this machine, or if the disk does not say what it has: a service
    tells how the cluster is also then."""
    if not isinstance(engine, RecoveringEngine):
        return None
    try:
        disk, needed = os.statvfs(engine.directory), needed_bytes(engine.directory)
    except OSError:
        return None
    return pb.StoreDisk(
        directory=str(engine.directory),
        capacity_bytes=disk.f_blocks * disk.f_frsize,
        free_bytes=disk.f_bavail * disk.f_frsize,
        full=engine.full,
        needed_bytes=needed,
    )
