"""Pages of directories, as the meta service tells them."""

from collections.abc import Sequence

from threefs_client import paths
from threefs_client.link import Link

from threefs.errors import NotFound
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_mount import entries
from threefs_mount.listing import Names
from threefs_mount.listings import SMALL
from threefs_mount.prefetcher import Prefetcher


async def attributes(link: Link, directory: int, after: bytes, limit: int) -> tuple[Sequence[pb.Entry], bool]:
    """So many entries behind a name, with attributes, and whether there are more."""
    request = pb.ListRequest(place=paths.of_inode(directory), after=after, limit=limit, attributes=True)
    reply = await link.meta.call(methods.LIST, request, timeout_s=link.options.timeout_s)
    return reply.entries, reply.more


async def names(
    link: Link, prefetcher: Prefetcher, directory: int, after: bytes, limit: int, known: int
) -> Names | None:
    """None: the directory has the token that is known. What comes along of attributes is given to the prefetcher."""
    request = pb.ListNamesRequest(directory=directory, after=after, limit=limit, known=known)
    wish = None if after else prefetcher.ahead.listed(directory, link.clock.monotonic())
    request.attributes_up_to = 0 if wish is None else SMALL
    try:
        reply = await link.meta.call(methods.LIST_NAMES, request, timeout_s=link.options.timeout_s)
    except BaseException as error:
        if wish is not None:
            prefetcher.ahead.failed(wish)
        if isinstance(error, NotFound):  # it was removed while it is open
            return entries.names(pb.ListNamesReply())
        raise
    if wish is not None and reply.attributes:
        found = zip(reply.names.split(b"\0"), map(pb.Inode.FromString, reply.attributes), strict=False)
        prefetcher.arrived(wish, list(found), b"")
    elif wish is not None:
        prefetcher.ahead.failed(wish)
    elif not after and not reply.unchanged and not reply.more and len(reply.types) <= SMALL:
        prefetcher.ahead.named(directory, link.clock.monotonic())
    return None if reply.unchanged else entries.names(reply)
