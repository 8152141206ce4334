"""Reports to the primary that only people need: how backups are, and which metadata stores were refused.

It is kept in memory. Backups tell it again within seconds, and a meta service whose store is refused is started again
and again by its service manager.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from threefs.bounded_dict import BoundedDict
from threefs.env.clock import Clock
from threefs.errors import InvalidArgument
from threefs.wire import manager_pb2 as pb

MAX_BACKUPS = 16
MAX_REFUSALS = 16
MAX_TEXT_CHARS = 1024
_MAX_STORES = 4
#: A backup that is silent for so long was given up.
_BACKUP_KEPT_S = 7 * 86_400.0
#: A service manager starts a meta service that was refused again and again: after so long it was taken away.
_REFUSAL_KEPT_S = 3600.0


@dataclass(frozen=True, slots=True)
class _Backup:
    heard_at: float
    request: pb.ReportBackupRequest


@dataclass(frozen=True, slots=True)
class _Refusal:
    at: float
    address: str
    reason: str


class Remarks:
    """Of one process; a new primary begins with none."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._backups = BoundedDict[str, _Backup](MAX_BACKUPS)
        self._refusals = BoundedDict[str, _Refusal](MAX_REFUSALS)

    def on_backup(self, request: pb.ReportBackupRequest) -> None:
        """Raises InvalidArgument."""
        if not 0 < len(request.name) <= MAX_TEXT_CHARS or len(request.stores) > _MAX_STORES:
            raise InvalidArgument(
                f"a backup has a name of 1 to {MAX_TEXT_CHARS} characters, not {len(request.name)}, and at most "
                f"{_MAX_STORES} stores, not {len(request.stores)}"
            )
        for store in request.stores:
            store.failure, store.store = store.failure[:MAX_TEXT_CHARS], store.store[:MAX_TEXT_CHARS]
        self._backups.put(request.name, _Backup(self._clock.monotonic(), request))

    def on_refusal(self, address: str, reason: str) -> None:
        """The metadata store of the meta service at this address was refused."""
        self._refusals.put(address, _Refusal(self._clock.monotonic(), address, reason[:MAX_TEXT_CHARS]))

    def on_admission(self, address: str) -> None:
        """Another store was put in the place of the one that was refused there."""
        self._refusals.pop(address, None)

    def backups(self) -> Iterator[pb.BackupStatus]:
        now = self._clock.monotonic()
        for name, backup in self._backups.items():
            if now - backup.heard_at < _BACKUP_KEPT_S:
                yield pb.BackupStatus(
                    name=name,
                    stores=backup.request.stores,
                    report_interval_ms=backup.request.report_interval_ms,
                    silent_ms=round((now - backup.heard_at) * 1000),
                )

    def refusals(self) -> Iterator[pb.RefusedStore]:
        now = self._clock.monotonic()
        for refusal in self._refusals.values():
            if now - refusal.at < _REFUSAL_KEPT_S:
                yield pb.RefusedStore(
                    address=refusal.address, reason=refusal.reason, ago_ms=round((now - refusal.at) * 1000)
                )
