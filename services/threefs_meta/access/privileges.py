"""What a file grants to those who run it: set-user-id, set-group-id, and its capabilities. Who changes its content must
not gain that.

A kernel takes capabilities away before it passes on a write, if its mount knows of them. Another mount may just have
set them.
"""

from threefs.wire import meta_pb2 as pb
from threefs_meta.access import permissions, xattrs
from threefs_meta.access.credentials import Credentials
from threefs_meta.store.namespace import Namespace

_CAPABILITIES = b"security.capability"


async def drop_on_write(ns: Namespace, inode: pb.Inode, actor: Credentials) -> None:
    """The actor has changed the content of the file. Changes the inode as well, which the caller stores."""
    if actor.is_super:
        return
    permissions.drop_privileges(inode, actor)
    capabilities = await xattrs.get(ns, inode, _CAPABILITIES)
    if capabilities is not None:
        xattrs.remove(ns, inode, _CAPABILITIES, capabilities)
