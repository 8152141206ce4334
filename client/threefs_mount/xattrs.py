"""Extended attributes, and ACLs, which the kernel passes on as extended attributes."""

import errno
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from threefs_client.context import ClientContext
from threefs_fuse.fuse_filesystem import Answer
from threefs_fuse.requests import Caller

from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_mount.files.open_file_table import OpenFileTable
from threefs_mount.kernel import errnos

_CAPABILITY = b"security.capability"
_KERNEL_CALLER = Caller(0, 0, 0)


class Xattrs:
    """`call` makes a call for a caller. `change` makes a call that changes an inode."""

    def __init__(
        self,
        context: ClientContext,
        files: OpenFileTable,
        call: Callable[..., Awaitable[Any]],
        change: Callable[..., Awaitable[Any]],
    ) -> None:
        self._context = context
        self._files = files
        self._call = call
        self._change = change

    def get(self, inode: int, caller: Caller, name: bytes) -> Answer[bytes]:
        file = self._files.get(inode)
        # The kernel asks for capabilities before a write. Those that another machine has just set go with the report of
        # the write.
        lacks_capability = name == _CAPABILITY and file is not None and not file.inode.xattr_bytes
        if lacks_capability or self._files.kernel_attrs.lacks_xattr(inode, name, self._context.clock.monotonic()):
            raise errnos.error(errno.ENODATA)
        return self._get(inode, caller, name)

    async def _get(self, inode: int, caller: Caller, name: bytes) -> bytes:
        request = pb.GetXattrRequest(place=pb.Place(base=inode), name=name)
        value: bytes = (await self._call(methods.GET_XATTR, request, caller)).value
        return value

    async def list(self, inode: int, caller: Caller) -> Sequence[bytes]:
        request = pb.ListXattrRequest(place=pb.Place(base=inode))
        names: Sequence[bytes] = (await self._call(methods.LIST_XATTR, request, caller)).names
        return names

    async def set(self, inode: int, caller: Caller, name: bytes, value: bytes, flags: int) -> None:
        file = self._files.get(inode)
        if file is not None and name == _CAPABILITY:
            await file.sync()  # a later report of the writes would take the capabilities away
        request = pb.SetXattrRequest(
            mutation=self._context.meta.identity(),
            place=self._files.place(inode),
            name=name,
            value=value,
            create=bool(flags & os.XATTR_CREATE),
            replace=bool(flags & os.XATTR_REPLACE),
        )
        try:
            self._apply_change((await self._change(methods.SET_XATTR, request, caller, inode)).inode)
        finally:
            self._files.kernel_attrs.invalidate(inode, self._context.clock.monotonic())

    async def remove(self, inode: int, caller: Caller, name: bytes) -> None:
        if name == _CAPABILITY:  # the kernel removes it before a write of a user who may not remove it
            caller = _KERNEL_CALLER
        request = pb.RemoveXattrRequest(
            mutation=self._context.meta.identity(), place=self._files.place(inode), name=name
        )
        self._apply_change((await self._change(methods.REMOVE_XATTR, request, caller, inode)).inode)

    def _apply_change(self, inode: pb.Inode) -> None:
        file = self._files.get(inode.inode)
        if file is not None:
            file.apply_own_change(inode)
