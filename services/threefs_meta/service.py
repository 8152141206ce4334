"""The methods of the meta service."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from threefs.errors import ThreefsError
from threefs.rpc import methods
from threefs.rpc.methods import Method, Rep, Req
from threefs.rpc.preencoded import Answer
from threefs_meta.access.credentials import NOBODY
from threefs_meta.batch.batch_transaction import run_batch
from threefs_meta.context import Context
from threefs_meta.ops.close import close
from threefs_meta.ops.create import create
from threefs_meta.ops.delegate import delegate, return_delegation
from threefs_meta.ops.fsck_recheck import fsck_recheck
from threefs_meta.ops.fsck_scan import fsck_scan
from threefs_meta.ops.link import link
from threefs_meta.ops.list import list_entries
from threefs_meta.ops.list_names import list_names
from threefs_meta.ops.lock import lock, query_lock
from threefs_meta.ops.mkdir import mkdir
from threefs_meta.ops.mknod import mknod
from threefs_meta.ops.open import open_inode
from threefs_meta.ops.precreate import precreate
from threefs_meta.ops.publish import publish
from threefs_meta.ops.quota import list_quotas, set_quota, show_quota
from threefs_meta.ops.remove import remove
from threefs_meta.ops.rename import rename
from threefs_meta.ops.renew_lease import renew_lease
from threefs_meta.ops.report_atime import report_atime
from threefs_meta.ops.reserve_append import reserve
from threefs_meta.ops.set_layout import set_layout
from threefs_meta.ops.setattr import set_attributes
from threefs_meta.ops.stat import access, batch_stat, lookup, stat
from threefs_meta.ops.statfs import statfs
from threefs_meta.ops.statistics import statistics
from threefs_meta.ops.symlink import symlink
from threefs_meta.ops.sync import sync
from threefs_meta.ops.trash import list_trash, set_trash
from threefs_meta.ops.truncate import truncate
from threefs_meta.ops.xattr import get_xattr, list_xattr, remove_xattr, set_xattr

#: With an embedded engine these methods rarely wait: they only read, or are single changes, whose commits are synced at
#: once. So they run without a task of their own, which would cost a tenth of a change.
_QUICK = frozenset(
    (
        methods.STAT,
        methods.BATCH_STAT,
        methods.LOOKUP,
        methods.LIST,
        methods.LIST_NAMES,
        methods.ACCESS,
        methods.CREATE,
        methods.OPEN,
        methods.CLOSE,
        methods.BATCH,
        methods.SYNC,
        methods.MKDIR,
        methods.MKNOD,
        methods.REMOVE,
        methods.RENAME,
        methods.SYMLINK,
        methods.LINK,
        methods.SET_ATTR,
        methods.RESERVE,
        methods.DELEGATE,
        methods.RETURN_DELEGATION,
        methods.PRECREATE,
        methods.PUBLISH,
    )
)


class Serves(Protocol):
    def serve(
        self, method: Method[Any, Any], handler: Callable[[Any], Awaitable[Any]], *, quick: bool = False
    ) -> None: ...


def bind(server: Serves, context: Context) -> None:
    """Serve all operations, and count their calls."""

    def add(
        method: Method[Req, Rep],
        operation: Callable[[Context, Req], Awaitable[Answer[Rep]]],
        names: Callable[[Req], int] = lambda request: 1,
    ) -> None:
        calls, monotonic = context.statistics.of(method.name), context.clock.monotonic
        has_caller = "caller" in method.request.DESCRIPTOR.fields_by_name

        async def counted(request: Any) -> Answer[Rep]:
            if has_caller and not request.HasField("caller"):
                request.caller.CopyFrom(NOBODY)
            began = monotonic()
            try:
                return await operation(context, request)
            except ThreefsError as error:
                calls.record_error(error)
                raise
            finally:
                calls.record(names(request), monotonic() - began)

        server.serve(method, counted, quick=context.engine.is_embedded and method in _QUICK)

    add(methods.CREATE, create)
    add(methods.OPEN, open_inode)
    add(methods.CLOSE, close)
    add(methods.BATCH, run_batch, lambda request: len(request.changes))
    add(methods.SYNC, sync)
    add(methods.STAT, stat)
    add(methods.BATCH_STAT, batch_stat, lambda request: len(request.places) + len(request.paths))
    add(methods.LOOKUP, lookup)
    add(methods.LIST, list_entries)
    add(methods.LIST_NAMES, list_names)
    add(methods.MKDIR, mkdir)
    add(methods.REMOVE, remove)
    add(methods.RENAME, rename)
    add(methods.SYMLINK, symlink)
    add(methods.LINK, link)
    add(methods.SET_ATTR, set_attributes)
    add(methods.TRUNCATE, truncate)
    add(methods.SET_LAYOUT, set_layout)
    add(methods.STAT_FS, statfs)
    add(methods.RENEW_LEASE, renew_lease)
    add(methods.SET_QUOTA, set_quota)
    add(methods.SHOW_QUOTA, show_quota)
    add(methods.LIST_QUOTAS, list_quotas)
    add(methods.REPORT_ATIME, report_atime)
    add(methods.SET_TRASH, set_trash)
    add(methods.LIST_TRASH, list_trash)
    add(methods.FSCK_SCAN, fsck_scan)
    add(methods.FSCK_RECHECK, fsck_recheck)
    add(methods.ACCESS, access)
    add(methods.MKNOD, mknod)
    add(methods.GET_XATTR, get_xattr)
    add(methods.LIST_XATTR, list_xattr)
    add(methods.SET_XATTR, set_xattr)
    add(methods.REMOVE_XATTR, remove_xattr)
    add(methods.LOCK, lock)
    add(methods.RESERVE, reserve)
    add(methods.QUERY_LOCK, query_lock)
    add(methods.STATISTICS, statistics)
    add(methods.DELEGATE, delegate)
    add(methods.RETURN_DELEGATION, return_delegation)
    add(methods.PRECREATE, precreate, lambda request: request.count)
    add(methods.PUBLISH, publish)
