"""The engine over an etcd cluster: reads are at one revision, and the commit compares the revisions of what was read.

A key has the prefix `NAME/d` in etcd. The commit is one etcd transaction: compares of revisions, then the writes.

* A key that was read must still have its revision.
* In a range that was read, no key may have a newer revision. This detects added and changed keys, but not removed ones,
  because a removed key has no revision. So each removal also writes a marker, the same key with the prefix `NAME/x`,
  and the range is compared among the markers as well. Two compares are enough for a range of any size; one compare for
  each key would soon exceed the limit of etcd.
* A marker is useless once all transactions that began before it have ended. A process that has written many markers
  removes all of them, and writes the key `NAME/f` in the same etcd transaction. A transaction that depends on a range
  compares that key as well. So a transaction that began before the removal ends with Conflict, without trust in clocks.
"""

from collections.abc import Iterable, Sequence

import grpc

from threefs.env.clock import CLOCK, Clock
from threefs.errors import Conflict, InvalidSettings, MaybeCommitted, NoSpace, ThreefsError, TooLarge
from threefs.kv.engine_api import MAX_TRANSACTION_SECONDS, TransactionCounts
from threefs.kv.etcd_members import MAX_OPERATIONS, Members
from threefs.kv.remote_transaction import RemoteTransaction, Row
from threefs.telemetry.library_logging import LibraryLogger
from threefs.wire import etcd_pb2 as pb

_KEYS_PER_CALL = 500
_PAGE = 500  # pairs per answer, each of at most 110 kB
_MAX_MARKERS = 4096

_LOG = LibraryLogger(__name__)


class EtcdEngine:
    """Use `await EtcdEngine.open(["host:port", ...])`."""

    is_embedded = False
    durable_change = 0

    def __init__(self, members: Members, name: str, clock: Clock) -> None:
        self.transaction_counts = TransactionCounts()
        self._members = members
        self._data = name.encode() + b"/d"
        self._markers = name.encode() + b"/x"
        self._floor = name.encode() + b"/f"
        self._markers_end = name.encode() + b"/y"
        self._marked = 0  # markers in etcd, as far as this process knows
        self._clock = clock

    @classmethod
    async def open(
        cls,
        addresses: Sequence[str],
        *,
        name: str = "threefs",
        user: str = "",
        password: str = "",
        credentials: grpc.ChannelCredentials | None = None,
        clock: Clock = CLOCK,
    ) -> "EtcdEngine":
        """Open the store of that name; one etcd cluster can hold several. Raises Unavailable, NotAuthorised;
        InvalidSettings if etcd allows too few operations in a transaction."""
        members = Members(addresses, user=user, password=password, credentials=credentials, clock=clock)
        engine = cls(members, name, clock)
        try:
            await engine._check()
        except BaseException:
            await members.close()
            raise
        return engine

    async def _check(self) -> None:
        markers = pb.EtcdRange(key=self._markers, range_end=self._markers_end, count_only=True)
        self._marked = (await self._members.read(markers)).count
        try:
            await self._members.try_many(MAX_OPERATIONS)
        except TooLarge as error:
            raise InvalidSettings(str(error)) from None

    def begin(self, lifetime_s: float = MAX_TRANSACTION_SECONDS) -> RemoteTransaction:
        return RemoteTransaction(self, _AtRevision(self._members, self._data), self._clock, lifetime_s)

    async def close(self) -> None:
        await self._members.close()

    async def confirm(self, attempt: RemoteTransaction) -> None:
        """Nothing to wait for: the answer of a member is on the disks of a majority."""

    async def commit(self, attempt: RemoteTransaction) -> None:
        assert isinstance(attempt.snapshot, _AtRevision)
        request = pb.EtcdTxn(
            compare=self._compares(attempt, attempt.snapshot.revision) if attempt.snapshot.revision else [],
            success=self._writes(attempt),
        )
        try:
            reply = await self._members.change(request)
        except NoSpace as error:
            raise await self._when_full(attempt, attempt.snapshot.revision, error) from None
        if not reply.succeeded:
            raise Conflict
        self._marked += sum(value is None for value in attempt.writes.values())
        if self._marked >= _MAX_MARKERS:
            await self._remove_markers()

    async def _when_full(self, attempt: RemoteTransaction, revision: int, full: NoSpace) -> ThreefsError:
        """The error of a commit, which etcd has answered by saying that it is full.

        It also answers so when it has applied a transaction that came through its check, and others have taken the room
        meanwhile. So the error holds only if one of the keys has not been written since `revision`.
        """
        key = next(iter(attempt.writes))
        traces = (self._data + key, self._markers + key, self._floor)
        try:
            _, replies = await self._members.read_all([pb.EtcdRange(key=trace) for trace in traces])
        except ThreefsError as error:
            return MaybeCommitted(f"{full.message}; then {error.message}")
        newest = max((pair.mod_revision for reply in replies for pair in reply.kvs), default=0)
        return MaybeCommitted(full.message) if newest > revision else full

    def _compares(self, attempt: RemoteTransaction, revision: int) -> list[pb.EtcdCompare]:
        """The compares of everything that was read, at `revision`."""
        reads, versions, data = attempt.reads, attempt.versions, self._data
        compares = [
            pb.EtcdCompare(target=pb.EtcdCompare.MOD, key=data + key, mod_revision=versions[key])
            for key in reads.points
            if key in versions
        ]
        ranges = [(begin, end) for begin, end in reads.ranges if begin < end]
        ranges += [(key, key + b"\0") for key in reads.points if key not in versions]
        if ranges:
            compares.append(_unchanged(self._floor, revision + 1))
        for begin, end in ranges:
            compares.append(_unchanged(data + begin, revision + 1, data + end))
            compares.append(_unchanged(self._markers + begin, revision + 1, self._markers + end))
        return compares

    def _writes(self, attempt: RemoteTransaction) -> Iterable[pb.EtcdOperation]:
        for key, value in attempt.writes.items():
            if value is None:
                yield pb.EtcdOperation(delete=pb.EtcdDelete(key=self._data + key))
                yield pb.EtcdOperation(put=pb.EtcdPut(key=self._markers + key))
            else:
                yield pb.EtcdOperation(put=pb.EtcdPut(key=self._data + key, value=value))

    async def _remove_markers(self) -> None:
        count, self._marked = self._marked, 0
        markers = pb.EtcdDelete(key=self._markers, range_end=self._markers_end)
        try:
            await self._members.change(
                pb.EtcdTxn(
                    success=[
                        pb.EtcdOperation(put=pb.EtcdPut(key=self._floor)),
                        pb.EtcdOperation(delete=markers),
                    ]
                )
            )
        except ThreefsError as error:  # the commit itself has succeeded, and markers can stay for a while
            self._marked += count
            _LOG.info("markers of removed keys cannot be removed now", error=str(error))


def _unchanged(key: bytes, before: int, end: bytes = b"") -> pb.EtcdCompare:
    """A compare: no key from `key` up to `end`, or only `key`, has the revision `before` or a later one."""
    return pb.EtcdCompare(
        result=pb.EtcdCompare.LESS, target=pb.EtcdCompare.MOD, key=key, range_end=end, mod_revision=before
    )


class _AtRevision:
    """The store at one revision. The first read gets the newest revision of the cluster; later ones name it."""

    def __init__(self, members: Members, prefix: bytes) -> None:
        self.revision = 0  # unknown before the first read
        self._members = members
        self._prefix = prefix

    async def fetch(self, keys: Sequence[bytes]) -> list[Row]:
        rows: list[Row] = []
        for first in range(0, len(keys), _KEYS_PER_CALL):
            requests = [self._request(key) for key in keys[first : first + _KEYS_PER_CALL]]
            if len(requests) == 1:
                replies = [await self._read(requests[0])]
            else:
                revision, replies = await self._members.read_all(requests)
                self.revision = self.revision or revision
            for reply in replies:
                rows += self._rows(reply)
        return rows

    async def scan(self, begin: bytes, end: bytes, limit: int, reverse: bool) -> list[Row]:
        rows: list[Row] = []
        while True:
            request = self._request(begin, end)
            request.limit = min(limit - len(rows), _PAGE) if limit else _PAGE
            if reverse:
                request.sort_order = pb.ETCD_DESCENDING
            reply = await self._read(request)
            rows += self._rows(reply)
            if not reply.more or len(rows) == limit:
                return rows
            last = rows[-1][0]
            begin, end = (begin, last) if reverse else (last + b"\0", end)

    async def _read(self, request: pb.EtcdRange) -> pb.EtcdRangeReply:
        reply = await self._members.read(request)
        self.revision = self.revision or reply.header.revision
        return reply

    def _request(self, begin: bytes, end: bytes | None = None) -> pb.EtcdRange:
        """Once the revision is known, a member that has it may answer without asking the others (`serializable`)."""
        return pb.EtcdRange(
            key=self._prefix + begin,
            range_end=b"" if end is None else self._prefix + end,
            revision=self.revision,
            serializable=self.revision > 0,
        )

    def _rows(self, reply: pb.EtcdRangeReply) -> Iterable[Row]:
        cut = len(self._prefix)
        return [(pair.key[cut:], pair.value, pair.mod_revision) for pair in reply.kvs]
