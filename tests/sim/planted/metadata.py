"""Names, lengths, locks and leases of files."""

import asyncio
from typing import Any

from threefs_client.async_file import AsyncFile
from threefs_client.data.handles import Handle
from threefs_client.data.whole_files import WholeFileWriter
from threefs_client.metadata import lease as lease_module
from threefs_client.metadata.call_retry import MetaClient
from threefs_client.metadata.lease import Lease
from threefs_client.metadata.precreated import PrecreatedFiles
from threefs_meta import transactions
from threefs_meta.access.entry_permissions import writable_parent
from threefs_meta.file import truncation
from threefs_meta.file.length import LengthUpdate
from threefs_meta.garbage_collector import GarbageCollector
from threefs_meta.lease import lease_reaper, leases, write_sessions
from threefs_meta.locks import fencing, file_locks
from threefs_meta.ops import lock as lock_module
from threefs_meta.ops import publish as publish_module
from threefs_meta.ops import rename as rename_module
from threefs_meta.resolve.resolver import resolve
from threefs_meta.store import keys
from threefs_meta.store.inode_numbers import InodeAllocator
from threefs_meta.store.namespace import Namespace

from tests.sim.kv import SimKv
from tests.sim.planted.registry import plant, plant_for, put
from threefs.leases import client_lease_s
from threefs.wire import meta_pb2 as pb


@plant
def conflicts_not_seen() -> None:
    """I9: a transaction is committed though what it has read was changed."""
    put(SimKv, "_judge", lambda self, attempt: None)


@plant_for("unit/client/threefs_client/metadata/test_lease.py::test_it_is_believed_for_less_than_its_length")
def lease_is_believed_to_its_end() -> None:
    """I18: a client with a slow clock relies on a lease that has ended by the clock of the service."""
    put(lease_module, "client_reliance_s", client_lease_s)


@plant
def repeated_mutation_is_made_again() -> None:
    """I9: a mutation that is asked for again is made again."""
    put(transactions, "_first_reply", _never)


@plant_for(
    "unit/services/threefs_meta/test_transactions.py::test_an_attempt_that_arrives_behind_a_failed_repeat_fails_too"
)
def failure_of_a_repeat_is_not_kept() -> None:
    """I9: a client hears that a change has failed, and an attempt of it from before is made later."""

    async def forgotten(*_: Any) -> None:
        pass

    put(transactions, "_keep_failure", forgotten)
    key = keys.replay
    count = [0]

    def another(client: bytes, request: int) -> Any:
        count[0] += 1
        return key(client, (request << 16) + count[0])

    put(keys, "replay", another)


def _never(method: Any, replay: Any) -> Any:
    raise AssertionError("no replay is found")


@plant
def every_attempt_is_another_mutation() -> None:
    """I9: a client gives a mutation a new identity when it sends it again."""
    send = MetaClient.send

    async def renamed(self: MetaClient, method: Any, request: Any, **more: Any) -> Any:
        connect = self._failover.record_failure

        def failed(address: str) -> None:
            if hasattr(request, "mutation"):
                request.mutation.CopyFrom(self.mutation())
            connect(address)

        self._failover.record_failure = failed  # type: ignore[method-assign]
        try:
            return await send(self, method, request, **more)
        finally:
            self._failover.record_failure = connect  # type: ignore[method-assign]

    put(MetaClient, "send", renamed)


@plant
def inode_numbers_are_given_twice() -> None:
    """Two inodes get one number, and so the same chunks."""
    take = InodeAllocator.allocate

    async def again(self: InodeAllocator) -> int:
        number = await take(self)
        return number - number % 3 if number % 3 == 1 and number > 12 else number

    put(InodeAllocator, "allocate", again)


@plant
def removed_names_leave_their_inode() -> None:
    """I10: the last name of a file goes, and its inode stays where nobody finds it."""
    put(Namespace, "queue_removal", lambda self, inode, now_ns: None)


@plant
def chunks_of_another_file_are_collected() -> None:
    """I10: the collector frees chunks of files that have names."""
    free = GarbageCollector._free

    async def wrong(self: GarbageCollector, item: Any) -> Any:
        item.inode.inode += 1
        freed = await free(self, item)
        item.inode.inode -= 1
        return freed

    put(GarbageCollector, "_free", wrong)


_DIES = "sim/test_small_files.py::test_a_writer_that_dies_at_any_moment_leaves_whole_files_and_nothing_else"


@plant_for(f"{_DIES}[3]")
def name_before_the_content() -> None:
    """A file that is written whole is published while its content is on its way."""
    fill = WholeFileWriter._fill

    async def late(self: WholeFileWriter, handle: Handle, data: memoryview) -> None:
        await asyncio.sleep(0.2)
        await fill(self, handle, data)

    async def later(self: WholeFileWriter, handle: Handle, data: memoryview) -> None:
        _LATE.append(asyncio.ensure_future(late(self, handle, data)))

    put(WholeFileWriter, "_fill", later)


_LATE: list[asyncio.Future[None]] = []


@plant_for("unit/services/threefs_meta/ops/test_publish.py::test_the_collector_and_a_publication_never_both_have_it")
def published_without_a_session() -> None:
    """I10: a file is published though its session has ended, so that the collector has its chunks too."""

    async def trusting(*args: Any) -> None:
        return

    put(write_sessions, "require_leased", trusting)
    put(publish_module, "_check_unused", lambda inode: None)


@plant_for(
    "unit/services/threefs_meta/ops/test_publish.py::test_a_name_that_exists_is_reported_before_missing_permissions"
)
def directory_is_checked_before_the_name() -> None:
    """A user who may not write a directory is refused to write a file in it that exists and that is the user's own."""

    async def strict(ns: Any, place: pb.Place, actor: Any, *, follow: bool) -> Any:
        resolved = await resolve(ns, place, actor, follow=follow)
        await writable_parent(ns, resolved, actor)
        return resolved

    put(publish_module, "resolve", strict)


@plant_for(
    "unit/services/threefs_meta/ops/test_precreate.py::test_with_the_lease_of_a_dead_client_they_and_their_chunks_go"
)
def precreated_files_outlive_their_client() -> None:
    """I10: what a client that has died made ahead stays, with the chunks that it has written."""
    put(lease_reaper, "LEASED_KINDS", lease_reaper.LEASED_KINDS[:-1])


@plant_for("unit/client/threefs_client/metadata/test_precreated.py::test_they_are_made_twice_as_many_each_time")
def precreated_file_is_taken_twice() -> None:
    """Two files that are written whole share one inode."""
    take = PrecreatedFiles.take

    async def shared(self: PrecreatedFiles, path: bytes, caller: Any, wanted: int = 1) -> Any:
        taken = await take(self, path, caller, wanted)
        if len(self) == 1:
            next(ready for ready in self._ready.values() if ready).append(taken)
        return taken

    put(PrecreatedFiles, "take", shared)


@plant_for("unit/client/threefs_client/data/test_whole_files.py::test_another_refusal_is_the_error_of_that_file")
def unpublished_file_is_forgotten() -> None:
    """I10: nobody ends the session of a file that was filled and then not published."""

    def forget(self: PrecreatedFiles, file: Any, request: Any, caller: Any, why: Any) -> None:
        self._lease.release()

    put(PrecreatedFiles, "give_up", forget)


@plant
def length_is_the_last_report() -> None:
    """I11: the length of a file is what the last writer has said, not the most that anybody has."""

    def apply(self: LengthUpdate, inode: pb.Inode) -> bool:
        inode.length = self.report.end
        return True

    put(LengthUpdate, "apply", apply)


@plant
def close_without_its_length() -> None:
    """I11: what is closed is not reported."""
    report = Handle._fill_report

    def silent(self: Handle, request: Any) -> None:
        report(self, request)
        request.length_hint //= 2
        request.exact = False

    put(Handle, "_fill_report", silent)


@plant
def length_is_asked_while_a_write_is_pending() -> None:
    """I11: a write of unknown outcome comes after the exact length was asked, and its bytes lie behind the end."""

    async def nothing(context: Any, inode: int, chains: int) -> None:
        pass

    put(fencing, "end_writes", nothing)


@plant_for(
    "unit/services/threefs_meta/locks/test_fencing.py::test_the_metadata_take_the_fence_of_the_chains_if_they_were_restored"
)
def fences_of_chains_stay_unknown() -> None:
    """I18: restored metadata give out fences that the chains refuse, for ever."""
    raise_in_inode = fencing._raise_in_inode

    async def forgetful(context: Any, tx: Any, number: int, *, at_least: int = 0) -> Any:
        return None if at_least else await raise_in_inode(context, tx, number)

    put(fencing, "_raise_in_inode", forgetful)


@plant
def old_bytes_behind_a_cut() -> None:
    """A file that is cut keeps its chunks; made longer again it shows them."""

    async def nothing(*args: Any) -> bool:
        return True

    put(truncation, "truncate_chunks", nothing)


@plant
def rename_leaves_the_old_name() -> None:
    """I10: a file that was moved has both names."""

    async def put_only(ns: Namespace, inode: pb.Inode, resolved: Any, now_ns: int) -> None:
        clear = ns.clear_entry
        ns.clear_entry = lambda *args: None  # type: ignore[method-assign]
        try:
            await original(ns, inode, resolved, now_ns)
            await ns.put_entry(resolved.parent, resolved.name + b"~", inode, now_ns)
        finally:
            ns.clear_entry = clear  # type: ignore[method-assign]

    original = rename_module._put
    put(rename_module, "_put", put_only)


@plant
def locks_do_not_exclude() -> None:
    """I18: a lock is given to two."""
    put(file_locks, "first_conflict", lambda held, wanted: None)


@plant
def lock_is_judged_by_a_snapshot() -> None:
    """I18: locks of others that come at the same moment are no conflict."""
    read_locks = lock_module.read_locks

    async def blind(ns: Namespace, inode: int, client: bytes) -> Any:
        reads: Any = ns.tx.reads  # type: ignore[attr-defined]
        ranges, points = list(reads.ranges), set(reads.points)
        found = await read_locks(ns, inode, client)
        reads.ranges[:], reads.points = ranges, points
        return found

    put(lock_module, "read_locks", blind)


@plant
def lock_ends_before_its_bytes_are_sent() -> None:
    """I18: who unlocks lets others in before what it has written is stored."""

    async def hasty(self: AsyncFile) -> None:
        if self._lock is not None:
            await self._lock.release()
            if self._mode.writable and not self._closed:
                await self.flush()

    put(AsyncFile, "unlock", hasty)


@plant
def leases_of_clients_end_too_early() -> None:
    """A client that renews its lease loses what it holds."""
    put(leases, "is_silent", lambda stamp, tick: tick > stamp)


@plant
def lease_is_not_renewed() -> None:
    """A client holds locks and write sessions for one lease only."""

    async def never(self: Lease) -> None:
        return

    put(Lease, "_renew_all", never)
