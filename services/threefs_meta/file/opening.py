"""What it takes to open a file that is there."""

from threefs.errors import InvalidArgument
from threefs.wire import meta_pb2 as pb
from threefs_meta.access import permissions
from threefs_meta.access.credentials import Credentials
from threefs_meta.access.permissions import WRITE


def check_open(inode: pb.Inode, actor: Credentials, request: pb.OpenRequest | pb.CreateRequest, shown: str) -> None:
    """Who opens for writing or cuts the file must be permitted to write, whatever else it asks.

    Raises AccessDenied, and then InvalidArgument for what has no content.
    """
    wanted = request.access
    if request.session or request.truncate:
        wanted |= WRITE
    permissions.check(inode, actor, wanted, shown)
    if request.session and inode.type != pb.FILE:
        raise InvalidArgument(f"{shown} is not a file that can be written")
