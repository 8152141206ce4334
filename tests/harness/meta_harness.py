"""A meta service in memory: real operations and a real chunk client over engines of the test's own memory."""

import contextlib
import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Concatenate, ParamSpec, TypeVar

from threefs_meta.context import Context
from threefs_meta.garbage_collector import GarbageCollector
from threefs_meta.lease.lease_reaper import LeaseReaper
from threefs_meta.lease.logical_clock import LogicalClock
from threefs_meta.ops.close import close
from threefs_meta.ops.create import create
from threefs_meta.ops.link import link
from threefs_meta.ops.list import list_entries
from threefs_meta.ops.mkdir import mkdir
from threefs_meta.ops.mknod import mknod
from threefs_meta.ops.open import open_inode
from threefs_meta.ops.precreate import precreate
from threefs_meta.ops.publish import publish
from threefs_meta.ops.quota import set_quota, show_quota
from threefs_meta.ops.remove import remove
from threefs_meta.ops.rename import rename
from threefs_meta.ops.renew_lease import renew_lease
from threefs_meta.ops.setattr import set_attributes
from threefs_meta.ops.stat import stat
from threefs_meta.ops.symlink import symlink
from threefs_meta.ops.trash import list_trash, set_trash
from threefs_meta.ops.truncate import truncate
from threefs_meta.ops.xattr import get_xattr, list_xattr, remove_xattr, set_xattr
from threefs_meta.quota.aggregator import UsageAggregator
from threefs_meta.store.inode_numbers import InodeAllocator
from threefs_meta.store.namespace import make_root

from tests.harness.clocks import SteppedClock
from tests.harness.fsck import check_clean
from tests.harness.memory_storage import MemoryCluster, MemoryStorage
from tests.harness.namespace_audit import audit
from tests.harness.seeded_random import SeededRandom
from threefs.cluster.chunk_client import ChunkClient
from threefs.cluster.chunk_update import ChunkUpdate
from threefs.ids import ChunkId, ClientId, InodeId
from threefs.kv import retry
from threefs.kv.memory import MemoryEngine
from threefs.layout import from_wire
from threefs.leases import LEASE_TICKS
from threefs.wire import manager_pb2, storage_pb2
from threefs.wire import meta_pb2 as pb

P = ParamSpec("P")
T = TypeVar("T")
CLIENT = bytes(range(16))
SESSION = b"s" * 16


async def reported() -> None:
    """There is no manager to which inode numbers could be reported."""


async def new_number(allocator: InodeAllocator) -> int:
    """As a transaction gets one."""
    if not allocator.left:
        await allocator.refill()
    return await allocator.allocate()


class MetaBench:
    """Operations by short names. `engine`, `storage` and `clock` are there to be tampered with."""

    def __init__(self, *, conflict_rate: float = 0.0, unknown_rate: float = 0.0, seed: int = 0) -> None:
        self.clock = SteppedClock()
        self.random = SeededRandom(seed)
        self.engine = MemoryEngine(
            random=self.random, conflict_rate=conflict_rate, unknown_rate=unknown_rate, clock=self.clock
        )
        self.cluster = MemoryCluster()
        self.storage = MemoryStorage(self.cluster)
        self.chunks = ChunkClient(self.storage, self.cluster, ClientId(b"m" * 16), clock=self.clock, random=self.random)
        self.status = manager_pb2.GetStatusReply()
        self.context = Context(
            engine=self.engine,
            chunks=self.chunks,
            allocator=InodeAllocator(self.engine, report=reported, clock=self.clock, random=self.random),
            logical_clock=LogicalClock(self.engine, lambda: 0.0, clock=self.clock, random=self.random),
            routing=lambda: self.cluster.routing,
            status=self._status,
            clock=self.clock,
            random=self.random,
        )
        self.collector = GarbageCollector(self.context)
        self.lease_reaper = LeaseReaper(self.context)
        self.caller: pb.Caller | None = None  # for whom everything is asked
        self.usage_aggregator = UsageAggregator(self.context)
        self._request = 0

    async def start(self) -> "MetaBench":
        await retry.run(
            self.engine,
            lambda tx: make_root(tx, self.clock.wall_ns()),
            clock=self.clock,
            random=self.random,
            replayable=True,
        )
        await self.context.logical_clock.poll()
        return self

    async def _status(self) -> manager_pb2.GetStatusReply:
        return self.status

    def mutation(self) -> pb.Mutation:
        self._request += 1
        return pb.Mutation(client=CLIENT, request=self._request)

    @contextlib.contextmanager
    def user(self, uid: int, gid: int, *groups: int) -> Iterator[None]:
        """What is asked inside is asked for this user."""
        before, self.caller = self.caller, pb.Caller(uid=uid, gid=gid, groups=groups)
        yield
        self.caller = before

    # ---- operations ----

    async def create(
        self,
        path: str,
        *,
        session: bytes = b"",
        exclusive: bool = False,
        truncate: bool = False,
        parents: bool = False,
        layout: pb.Layout | None = None,
        mode: int = 0o644,
        umask: int = 0,
        access: int = 0,
        unnamed: bool = False,
    ) -> pb.CreateReply:
        request = pb.CreateRequest(
            caller=self.caller,
            mutation=self.mutation(),
            place=at(path),
            mode=mode,
            session=session,
            exclusive=exclusive,
            truncate=truncate,
            parents=parents,
            layout=layout,
            umask=umask,
            access=access,
            unnamed=unnamed,
        )
        return await create(self.context, request)

    async def open(self, path: str, *, session: bytes = b"", truncate: bool = False, access: int = 0) -> pb.Inode:
        request = pb.OpenRequest(
            caller=self.caller,
            mutation=self.mutation(),
            place=at(path),
            session=session,
            truncate=truncate,
            access=access,
        )
        return (await open_inode(self.context, request)).inode

    async def close(
        self,
        inode: pb.Inode,
        session: bytes = b"",
        *,
        length_hint: int = 0,
        exact: bool = False,
        written: bool = False,
        truncate_version: int | None = None,
        attempted_end: int = 0,
    ) -> pb.Inode:
        request = pb.CloseRequest(
            caller=self.caller,
            mutation=self.mutation(),
            inode=inode.inode,
            session=session,
            length_hint=length_hint,
            truncate_version=inode.truncate_version if truncate_version is None else truncate_version,
            exact=exact,
            written=written,
            attempted_end=attempted_end,
        )
        return (await close(self.context, request)).inode

    async def precreate(self, path: str, count: int = 1, session: bytes = SESSION) -> list[pb.Inode]:
        request = pb.PrecreateRequest(
            caller=self.caller, mutation=self.mutation(), place=at(path), count=count, session=session
        )
        return list((await precreate(self.context, request)).inodes)

    async def publish(
        self,
        inode: pb.Inode,
        path: str,
        *,
        length: int = 0,
        session: bytes = SESSION,
        mode: int = 0o644,
        umask: int = 0,
        replace: bool = False,
        parents: bool = False,
    ) -> pb.Inode:
        request = pb.PublishRequest(
            caller=self.caller,
            mutation=self.mutation(),
            inode=inode.inode,
            session=session,
            place=at(path),
            length=length,
            mode=mode,
            umask=umask,
            replace=replace,
            parents=parents,
        )
        return (await publish(self.context, request)).inode

    async def set_quota(
        self,
        path: str = "",
        *,
        uid: int | None = None,
        limit_bytes: int = 0,
        limit_inodes: int = 0,
        keep_bytes: bool = False,
        keep_inodes: bool = False,
        clear: bool = False,
    ) -> pb.Quota:
        request = pb.SetQuotaRequest(
            mutation=self.mutation(),
            place=at(path),
            uid=uid,
            limit_bytes=limit_bytes,
            limit_inodes=limit_inodes,
            keep_bytes=keep_bytes,
            keep_inodes=keep_inodes,
            clear=clear,
        )
        return (await set_quota(self.context, request)).quota

    async def quota(self, path: str = "", *, uid: int | None = None) -> pb.Quota | None:
        reply = await show_quota(self.context, pb.ShowQuotaRequest(place=at(path), uid=uid))
        return reply.quota if reply.HasField("quota") else None

    async def count_all(self) -> None:
        """Until usage is up to date, and this service has seen it."""
        while await self.usage_aggregator.run_once():
            pass

    async def renew(
        self, client: bytes = CLIENT, *, hold: Sequence[int] = (), drop: Sequence[int] = (), end: int = 0
    ) -> pb.RenewLeaseReply:
        return await renew_lease(self.context, pb.RenewLeaseRequest(client=client, hold=hold, drop=drop, end=end))

    async def mkdir(
        self, path: str, *, parents: bool = False, layout: pb.Layout | None = None, mode: int = 0o755, umask: int = 0
    ) -> pb.Inode:
        request = pb.MkdirRequest(
            caller=self.caller,
            mutation=self.mutation(),
            place=at(path),
            mode=mode,
            umask=umask,
            parents=parents,
            layout=layout,
        )
        return (await mkdir(self.context, request)).inode

    async def remove(self, path: str, *, recursive: bool = False, kind: pb.RemoveKind = pb.ANYTHING) -> None:
        await remove(
            self.context,
            pb.RemoveRequest(
                caller=self.caller, mutation=self.mutation(), place=at(path), recursive=recursive, kind=kind
            ),
        )

    async def rename(
        self,
        source: str,
        destination: str,
        *,
        no_replace: bool = False,
        exchange: bool = False,
        always_moves: bool = False,
    ) -> pb.Inode:
        request = pb.RenameRequest(
            caller=self.caller,
            mutation=self.mutation(),
            source=at(source),
            destination=at(destination),
            no_replace=no_replace,
            exchange=exchange,
            always_moves=always_moves,
        )
        return (await rename(self.context, request)).inode

    async def link(self, source: str, destination: str) -> pb.Inode:
        request = pb.LinkRequest(
            caller=self.caller, mutation=self.mutation(), source=at(source), destination=at(destination)
        )
        return (await link(self.context, request)).inode

    async def set_trash(self, path: str, seconds: int | None) -> pb.Inode:
        request = pb.SetTrashRequest(caller=self.caller, mutation=self.mutation(), place=at(path), trash_s=seconds)
        return (await set_trash(self.context, request)).inode

    async def trash(self, uid: int = 0) -> list[pb.TrashItem]:
        """What is in the trash of an owner."""
        request = pb.ListTrashRequest(caller=self.caller, place=at(f"/.trash/{uid}"))
        return list((await list_trash(self.context, request)).items)

    async def symlink(self, target: str, path: str) -> pb.Inode:
        request = pb.SymlinkRequest(
            caller=self.caller, mutation=self.mutation(), place=at(path), target=target.encode()
        )
        return (await symlink(self.context, request)).inode

    async def mknod(self, path: str, kind: pb.InodeType, mode: int = 0o644, rdev: int = 0) -> pb.Inode:
        request = pb.MknodRequest(
            caller=self.caller, mutation=self.mutation(), place=at(path), type=kind, mode=mode, rdev=rdev
        )
        return (await mknod(self.context, request)).inode

    async def set(self, path: str, follow: bool = True, /, **values: int) -> pb.Inode:
        request = pb.SetAttrRequest(caller=self.caller, mutation=self.mutation(), place=at(path), follow=follow)
        for name, value in values.items():
            setattr(request, name, value)
        return (await set_attributes(self.context, request)).inode

    async def get_xattr(self, path: str, name: bytes) -> bytes:
        request = pb.GetXattrRequest(caller=self.caller, place=at(path), name=name)
        return (await get_xattr(self.context, request)).value

    async def xattrs(self, path: str) -> list[bytes]:
        return list((await list_xattr(self.context, pb.ListXattrRequest(caller=self.caller, place=at(path)))).names)

    async def set_xattr(
        self, path: str, name: bytes, value: bytes, *, create: bool = False, replace: bool = False
    ) -> pb.Inode:
        request = pb.SetXattrRequest(
            caller=self.caller,
            mutation=self.mutation(),
            place=at(path),
            name=name,
            value=value,
            create=create,
            replace=replace,
        )
        return (await set_xattr(self.context, request)).inode

    async def remove_xattr(self, path: str, name: bytes) -> pb.Inode:
        request = pb.RemoveXattrRequest(caller=self.caller, mutation=self.mutation(), place=at(path), name=name)
        return (await remove_xattr(self.context, request)).inode

    async def truncate(self, path: str, length: int, session: bytes = b"") -> pb.Inode:
        request = pb.TruncateRequest(
            caller=self.caller, mutation=self.mutation(), place=at(path), length=length, session=session
        )
        return (await truncate(self.context, request)).inode

    async def stat(self, path: str, *, follow: bool = True) -> pb.Inode:
        return (await stat(self.context, pb.StatRequest(caller=self.caller, place=at(path), follow=follow))).inode

    async def names(self, path: str) -> list[str]:
        reply = (await list_entries(self.context, pb.ListRequest(caller=self.caller, place=at(path)))).parsed()
        assert not reply.more
        return [entry.name.decode() for entry in reply.entries]

    # ---- bytes ----

    async def write(self, inode: pb.Inode, offset: int, data: bytes, fence: int | None = None) -> None:
        """As a client does: chunks only. `data` lies in one chunk. Without a `fence` there is no check of it."""
        layout = from_wire(inode.layout)
        number, within = divmod(offset, layout.chunk_bytes)
        if fence is None:
            await self.chunks.write(layout, InodeId(inode.inode), number, within, data, timeout_s=5)
            return
        chain = layout.chains(self.cluster.routing.tables[layout.table_id])[number % layout.stripe]
        chunk = ChunkId(InodeId(inode.inode), number)
        update = ChunkUpdate(
            chain, chunk, storage_pb2.WRITE, layout.chunk_bytes, within, len(data), memoryview(data), fence=fence
        )
        await self.chunks.apply([update], timeout_s=5)

    def chunk_numbers(self, inode: pb.Inode) -> list[int]:
        return sorted(chunk.number for chunk in self.storage.data if chunk.inode == inode.inode)

    # ---- what ends a test ----

    async def pass_lease(self) -> None:
        """Let so many ticks go by that what was removed before may be freed, and whoever was silent is given up."""
        await self.pass_ticks(LEASE_TICKS + 1)

    async def pass_ticks(self, count: int) -> None:
        for _ in range(count):
            self.clock.advance(self.context.logical_clock.tick_s)
            while not await self.context.logical_clock.poll():
                self.clock.advance(0.1)

    async def collect_all(self) -> None:
        """Free all that has been removed so far and is not open: directories, then the files that were in them."""
        for _ in range(2):
            await self.pass_lease()
            while await self.collector.collect():
                pass

    async def audit(self) -> None:
        """Invariant I10, by its own checker, and `threefs fsck` must agree."""
        await audit(self.engine)
        await check_clean(self.context)


def at(path: str | bytes, base: int = 0) -> pb.Place:
    return pb.Place(base=base, path=path.encode() if isinstance(path, str) else path)


def with_bench(test: Callable[Concatenate[MetaBench, P], Awaitable[None]]) -> Callable[P, None]:
    """For a coroutine below `@given`: each example gets a bench of its own, which must pass the audit in the end."""

    @functools.wraps(test)
    def example(*args: P.args, **kwargs: P.kwargs) -> None:
        run(lambda bench: test(bench, *args, **kwargs))

    # The examples are for the rest of its parameters.
    signature = inspect.signature(test)
    example.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values()][1:]
    )
    return example


def run(test: Callable[[MetaBench], Awaitable[T]], **options: float) -> T:
    """Run a test over a fresh bench, which must pass the audit in the end."""
    import asyncio

    async def whole() -> T:
        bench = await MetaBench(**options).start()  # type: ignore[arg-type]
        result = await test(bench)
        await bench.audit()
        return result

    return asyncio.run(whole())
