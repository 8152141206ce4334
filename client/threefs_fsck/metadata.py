"""Checks the tables of the meta service, page by page while they change.

A suspect may only have changed between two pages, so the service checks each suspect again in one transaction. It
cannot check the number of names of a file that way: only a walk through all entries finds the names, and a walk may
miss a name that is being moved. But every change of a name sets the change time of its inode. So the names of an
inode count only if its change time is the same before and after the walk. An inode that changes during every walk is
left for another check.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from threefs.paging import next_place
from threefs.rpc import methods
from threefs.rpc.methods import Method, Rep, Req
from threefs.wire import meta_pb2 as pb
from threefs_fsck import findings
from threefs_fsck.findings import Report
from threefs_fsck.link_counts import LinkCounts, ParentLinks
from threefs_fsck.usage import UsageCount

PAGE_ROWS = 1024
SUBJECTS_PER_REQUEST = 64
NAMES_PER_REQUEST = 16_384
INODES_PER_REQUEST = 4096
#: Further walks for suspects that changed during one.
MAX_WALKS = 4
#: Bounds the memory of one run. With --repair, the next run finds the rest.
MAX_SUSPECTS = 100_000
CALL_S = 60.0

T = TypeVar("T")
#: Called with (name of the table, rows read since the last call).
Progress = Callable[[str, int], None]


class MetaService(Protocol):
    """The part of threefs_client.metadata.call_retry.MetaClient that a check needs."""

    def mutation(self) -> pb.Mutation: ...

    async def call(self, method: Method[Req, Rep], request: Req, *, timeout_s: float) -> Rep: ...


class MetadataCheck:
    def __init__(self, meta: MetaService, report: Report, *, repair: bool, progress: Progress) -> None:
        self._meta = meta
        self._report = report
        self._repair = repair
        self._progress = progress
        self.restored_ns = 0  # when the store was restored, Unix time; 0: never
        self._in_queue: set[int] = set()
        self._queued: dict[int, dict[bytes, None]] = {}  # suspected inode -> its keys in the removal queue
        self._named_in_queue: set[int] = set()  # suspected because the queue has them
        self._suspects: dict[int, dict[tuple[int, bytes], None]] = {}  # inode -> its names, as gathered

    async def run(self) -> None:
        counts = LinkCounts()
        await self._scan_queue()
        async for page in self._pages(pb.FSCK_ENTRIES):
            counts.add(page.inode)
            self._report.entries += page.rows
            await self._recheck(page.suspects)
        counts.close()
        usage = await self._read_accounts()
        await self._scan_inodes(counts, usage)
        async for page in self._pages(pb.FSCK_ATTACHED):
            await self._recheck(page.suspects)
        await self._recheck_inodes()
        await self._check_usage(usage)

    async def _scan_queue(self) -> None:
        async for page in self._pages(pb.FSCK_QUEUE):
            self._in_queue.update(page.inode)
            await self._recheck([subject for subject in page.suspects if subject.key])
            for subject in page.suspects:
                if subject.inode:
                    self._named_in_queue.add(subject.inode)
                    self._suspect(subject.inode)

    async def _scan_inodes(self, counts: LinkCounts, usage: UsageCount) -> None:
        parents = ParentLinks()
        async for page in self._pages(pb.FSCK_INODES):
            self._report.inodes += page.rows
            self.restored_ns = page.restored_ns
            usage.add(page.usage)
            await self._recheck([subject for subject in page.suspects if subject.key])
            for subject in page.suspects:
                if subject.inode:
                    self._suspect(subject.inode)
            found = zip(page.inode, page.type, page.nlink, page.parent, counts.of(page.inode).tolist(), strict=True)
            directories = []
            for inode, kind, nlink, parent, names in found:
                if kind == pb.DIRECTORY:
                    directories.append((inode, parent))
                if (names and not nlink) if kind == pb.DIRECTORY else nlink != names:
                    self._suspect(inode)
                if not nlink and inode not in self._in_queue:
                    self._suspect(inode)
            parents.add([inode for inode, _ in directories], [parent for _, parent in directories])
        await self._recheck([pb.FsckSubject(inode=inode, loop=True) for inode in parents.cycles()])

    def _suspect(self, inode: int) -> None:
        if len(self._suspects) < MAX_SUSPECTS:
            self._suspects.setdefault(inode, {})
        else:
            self._report.complete = False

    # ---- quotas ----

    async def _read_accounts(self) -> UsageCount:
        kept: list[pb.FsckUsage] = []
        async for page in self._pages(pb.FSCK_USAGE):
            kept += page.usage
        return UsageCount(kept)

    async def _check_usage(self, first: UsageCount) -> None:
        """Count again where the sums differ: a change during a count looks like a difference, but not twice the
        same."""
        suspected = first.differences()
        if not suspected:
            return
        again = await self._read_accounts()
        async for page in self._pages(pb.FSCK_INODES):
            again.add(page.usage)
        differences = again.differences()
        accounts = sorted(account for account, cost in suspected.items() if differences.get(account) == cost)
        await self._recheck(again.subjects(accounts))

    # ---- second check of suspects ----

    async def _recheck_inodes(self) -> None:
        """Gather the names of the suspects and check them; repeat for those that changed during the walk."""
        for _ in range(MAX_WALKS):
            if not self._suspects:
                return
            times = await self._change_times(sorted(self._suspects))
            await self._gather_names()
            for part in _batches(list(self._suspects.items())):
                await self._recheck([self._subject(inode, names, times[inode]) for inode, names in part])
            now = await self._change_times(sorted(self._suspects))
            changed = {inode for inode, ctime_ns in times.items() if now.get(inode, ctime_ns) != ctime_ns}
            self._suspects = {inode: {} for inode in self._suspects if inode in changed}

    async def _change_times(self, inodes: Sequence[int]) -> dict[int, int]:
        """Change times of inodes; 0: unreadable, missing, or a directory, which records its only parent itself."""
        found: dict[int, int] = {}
        for start in range(0, len(inodes), INODES_PER_REQUEST):
            part = inodes[start : start + INODES_PER_REQUEST]
            request = pb.BatchStatRequest(places=[pb.Place(base=inode) for inode in part])
            reply = await self._meta.call(methods.BATCH_STAT, request, timeout_s=CALL_S)
            for inode, row in zip(part, reply.results, strict=True):
                found[inode] = row.inode.ctime_ns if row.inode.type != pb.DIRECTORY else 0
        return found

    async def _gather_names(self) -> None:
        numbers = sorted(self._suspects)
        for start in range(0, len(numbers), INODES_PER_REQUEST):
            wanted = numbers[start : start + INODES_PER_REQUEST]
            async for page in self._pages(pb.FSCK_ENTRIES, wanted):
                for name in page.names:
                    self._suspects[name.inode][name.parent, name.name] = None
            async for page in self._pages(pb.FSCK_QUEUE, wanted):
                for subject in page.suspects:
                    self._queued.setdefault(subject.inode, {}).update(dict.fromkeys(subject.queued))
        for inode in numbers:  # a file that lost its last name after the scan of the queue is in the queue by now
            if inode in self._queued and inode not in self._named_in_queue and not self._suspects[inode]:
                del self._suspects[inode]

    def _subject(self, inode: int, names: dict[tuple[int, bytes], None], ctime_ns: int) -> pb.FsckSubject:
        found = [pb.FsckName(inode=inode, parent=parent, name=name) for parent, name in names]
        queued = list(self._queued.get(inode, ()))
        return pb.FsckSubject(inode=inode, names=found, queued=queued, ctime_ns=ctime_ns)

    async def _recheck(self, subjects: Sequence[pb.FsckSubject]) -> None:
        for start in range(0, len(subjects), SUBJECTS_PER_REQUEST):
            found = await self._call(subjects[start : start + SUBJECTS_PER_REQUEST], repair=self._repair)
            self._report.findings += findings.of_wire(found)

    # ---- calls ----

    async def _call(self, subjects: Sequence[pb.FsckSubject], *, repair: bool) -> Sequence[pb.FsckFinding]:
        request = pb.FsckRecheckRequest(subjects=subjects, repair=repair)
        if repair:
            request.mutation.CopyFrom(self._meta.mutation())
        return (await self._meta.call(methods.FSCK_RECHECK, request, timeout_s=CALL_S)).findings

    async def _pages(self, table: pb.FsckTable, wanted: Sequence[int] = ()) -> AsyncIterator[pb.FsckScanReply]:
        after, more = b"", True
        while more:
            request = pb.FsckScanRequest(table=table, after=after, limit=PAGE_ROWS, wanted=wanted)
            page = await self._meta.call(methods.FSCK_SCAN, request, timeout_s=CALL_S)
            if more := page.more:
                after = next_place(_TITLES[table], after, page.after)
            self._progress(_TITLES[table], page.rows)
            yield page


_TITLES = {
    pb.FSCK_ENTRIES: "entries",
    pb.FSCK_INODES: "inodes",
    pb.FSCK_QUEUE: "removals",
    pb.FSCK_ATTACHED: "sessions and times",
    pb.FSCK_USAGE: "usage of quotas",
}


def _batches(
    suspects: list[tuple[int, dict[tuple[int, bytes], None]]],
) -> Iterator[list[tuple[int, dict[tuple[int, bytes], None]]]]:
    """Suspects in batches that keep a request small."""
    part: list[tuple[int, dict[tuple[int, bytes], None]]] = []
    names = 0
    for suspect in suspects:
        if part and (len(part) == SUBJECTS_PER_REQUEST or names + len(suspect[1]) > NAMES_PER_REQUEST):
            yield part
            part, names = [], 0
        part.append(suspect)
        names += len(suspect[1])
    if part:
        yield part
