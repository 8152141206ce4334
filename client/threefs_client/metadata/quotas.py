"""Quotas of directory trees and of users."""

from dataclasses import dataclass
from typing import Protocol

from threefs.errors import InvalidArgument
from threefs.paging import next_place
from threefs.rpc import methods
from threefs.rpc.methods import Method, Rep, Req
from threefs.wire import meta_pb2 as pb
from threefs_client import paths
from threefs_client.context import ClientContext
from threefs_client.paths import Path


@dataclass(frozen=True, slots=True)
class Quota:
    """The quota of a tree or of a user. Files count with their lengths. A limit of 0 means none."""

    path: str | None  # of the tree
    uid: int | None
    limit_bytes: int
    limit_inodes: int
    used_bytes: int
    used_inodes: int
    counting: bool  # files from before the quota are still being counted


class _Namespace(Protocol):
    context: ClientContext

    async def _call(self, method: Method[Req, Rep], request: Req) -> Rep: ...


class Quotas:
    """Each call names a directory or a user."""

    def __init__(self, namespace: _Namespace) -> None:
        self._namespace = namespace

    async def set(
        self,
        path: Path | None = None,
        *,
        uid: int | None = None,
        limit_bytes: int | None = 0,
        limit_inodes: int | None = 0,
    ) -> None:
        """Limit the files in a tree or of a user; a limit of 0 only counts them, and None leaves that limit as it is.
        For the administrator."""
        if (limit_bytes or 0) < 0 or (limit_inodes or 0) < 0:
            raise InvalidArgument(f"quota limits cannot be negative: {limit_bytes} bytes, {limit_inodes} inodes")
        request = _request(path, uid)
        request.keep_bytes, request.keep_inodes = limit_bytes is None, limit_inodes is None
        if limit_bytes is None or limit_inodes is None:
            before = await self._own(request)  # a service before 0.3 keeps no limit: it is told what that was
            limit_bytes = before.limit_bytes if limit_bytes is None else limit_bytes
            limit_inodes = before.limit_inodes if limit_inodes is None else limit_inodes
        await self._change(request, limit_bytes, limit_inodes)

    async def _own(self, of: pb.SetQuotaRequest) -> pb.Quota:
        """The quota of a user, or of a directory itself, not of one above it; without limits if it has none."""
        uid = of.uid if of.HasField("uid") else None
        found = (await self._namespace._call(methods.SHOW_QUOTA, pb.ShowQuotaRequest(place=of.place, uid=uid))).quota
        if uid is not None:
            return found
        reply = await self._namespace._call(methods.STAT, pb.StatRequest(place=of.place, follow=True))
        return found if found.tree == reply.inode.inode else pb.Quota()

    async def clear(self, path: Path | None = None, *, uid: int | None = None) -> None:
        """Remove the quota. For the administrator."""
        request = _request(path, uid)
        request.clear = True
        await self._change(request, 0, 0)

    async def _change(self, request: pb.SetQuotaRequest, limit_bytes: int, limit_inodes: int) -> None:
        request.mutation.CopyFrom(self._namespace.context.meta.mutation())
        request.limit_bytes, request.limit_inodes = limit_bytes, limit_inodes
        await self._namespace._call(methods.SET_QUOTA, request)

    async def show(self, path: Path | None = None, *, uid: int | None = None) -> Quota | None:
        """The quota that `path` counts for, or the quota of a user; None if there is none."""
        wanted = _request(path, uid)
        request = pb.ShowQuotaRequest(place=wanted.place, uid=uid)
        reply = await self._namespace._call(methods.SHOW_QUOTA, request)
        return _of_wire(reply.quota) if reply.HasField("quota") else None

    async def list(self) -> list[Quota]:
        """All quotas. For the administrator."""
        found: list[Quota] = []
        after = b""
        while True:
            reply = await self._namespace._call(methods.LIST_QUOTAS, pb.ListQuotasRequest(after=after))
            found += map(_of_wire, reply.quotas)
            if not reply.next:
                return found
            after = next_place("quotas", after, reply.next)


def _request(path: Path | None, uid: int | None) -> pb.SetQuotaRequest:
    if (path is None) == (uid is None):
        raise InvalidArgument("a quota is that of a directory or of a user: name one of them")
    if uid is not None and not 0 <= uid < 1 << 32:
        raise InvalidArgument(f"user ids are 32-bit numbers: {uid}")
    return pb.SetQuotaRequest(place=None if path is None else paths.place(path), uid=uid)


def _of_wire(quota: pb.Quota) -> Quota:
    return Quota(
        path=paths.decode(quota.path) if quota.tree else None,
        uid=None if quota.tree else quota.uid,
        limit_bytes=quota.limit_bytes,
        limit_inodes=quota.limit_inodes,
        used_bytes=quota.used_bytes,
        used_inodes=quota.used_inodes,
        counting=quota.counting,
    )
