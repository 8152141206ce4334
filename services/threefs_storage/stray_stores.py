"""Stores on the disk of targets that the cluster does not have, and that nobody waits for.

A node that was dead, was drained and removed, and joins again with its disk, has all its former stores there: the
manager has forgotten their targets, so nobody tells the node to delete them. They fill the disk. The process deletes
none by itself: after a restore of the manager, or a loss that was accepted too early, one may have what nobody else
has. So it reports them, and an administrator removes them.
"""

import re
from collections.abc import Callable, Collection
from pathlib import Path

import structlog

from threefs.env.disk import Disk
from threefs.errors import ThreefsError
from threefs.ids import TargetId
from threefs.routing import Routing
from threefs.wire import manager_pb2 as pb

_NAME = re.compile(r"target-([1-9][0-9]*)(?:\.damaged)?")
_MAX_ID = (1 << 32) - 1
_LOG = structlog.get_logger()


class StrayStores:
    def __init__(self, directory: Path, disk: Disk, needed: Callable[[], Collection[TargetId]]) -> None:
        """`needed` returns the targets whose stores this process has in use, or a manager may ask for."""
        self._directory = directory
        self._disk = disk
        self._needed = needed
        self._bytes: dict[tuple[TargetId, str], int] = {}  # by target and name of the directory

    async def look(self, newest: Callable[[], Routing]) -> None:
        """See which there are. Only new ones are measured, and named in the log."""
        try:
            names = await self._disk.list_directory(self._directory)
            wanted = {*newest().targets, *self._needed()}  # only now: a store is made when the routing has its target
            strays = {(t, name) for name in names if (t := _target_of(name)) is not None and t not in wanted}
        except ThreefsError as error:  # the disk may answer next time
            _LOG.info("nobody knows whether there are stray stores", error=str(error))
            return
        self._bytes = {stray: taken for stray, taken in self._bytes.items() if stray in strays}
        for target, name in sorted(strays - self._bytes.keys()):
            await self._add(target, name)

    async def _add(self, target: TargetId, name: str) -> None:
        place = self._directory / name
        try:
            taken = self._bytes[target, name] = await self._disk.directory_bytes(place)
        except ThreefsError as error:  # a directory that cannot be read, or that is gone, hides no other one
            _LOG.info("a stray store cannot be measured", place=str(place), error=str(error))
            return
        _LOG.warning("a store of a target that the cluster does not have is on the disk", place=str(place), bytes=taken)

    def report(self) -> pb.StrayStores | None:
        """For the heartbeat; None if there is none."""
        if not self._bytes:
            return None
        return pb.StrayStores(targets=sorted({target for target, _ in self._bytes}), bytes=sum(self._bytes.values()))


def _target_of(name: str) -> TargetId | None:
    """None: it is no directory of a store."""
    found = _NAME.fullmatch(name)
    return TargetId(int(found[1])) if found is not None and int(found[1]) <= _MAX_ID else None
