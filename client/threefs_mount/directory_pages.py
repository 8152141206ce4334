"""Pages of directories, as the meta service tells them."""

from collections.abc import Sequence

from threefs_client import paths
from threefs_client.link import Link

from threefs.errors import NotFound
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_mount import entries
from threefs_mount.ahead import Ahead
from threefs_mount.listing import Names
from threefs_mount.listings import SMALL


async def attributes(link: Link, directory: int, after: bytes, limit: int) -> tuple[Sequence[pb.Entry], bool]:
    """So many entries behind a name, with attributes, and whether there are more."""
    request = pb.ListRequest(place=paths.of_inode(directory), after=after, limit=limit, attributes=True)
    reply = await link.meta.call(methods.LIST, request, timeout_s=link.options.timeout_s)
    return reply.entries, reply.more


async def names(
    link: Link, ahead: Ahead, directory: int, after: bytes, limit: int, known: int, program: int | None
) -> Names | None:
    """None: the directory has the token that is known. `program` begins to read it."""
    request = pb.ListNamesRequest(directory=directory, after=after, limit=limit, known=known)
    if program is not None and ahead.listed(directory, program):
        request.attributes_up_to = SMALL
    since_s, mark = link.clock.monotonic(), ahead.touches.mark
    try:
        reply = await link.meta.call(methods.LIST_NAMES, request, timeout_s=link.options.timeout_s)
    except NotFound:  # it was removed while it is open
        return entries.names(pb.ListNamesReply())
    if reply.unchanged:
        return None
    if reply.attributes:
        return entries.names_and_attributes(reply, directory, since_s, mark)
    if program is not None and not reply.more and len(reply.types) <= SMALL:
        ahead.named(directory, program, link.clock.monotonic())
    return entries.names(reply)
