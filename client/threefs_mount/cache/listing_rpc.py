"""Calls of the meta service for the pages of directories."""

from collections.abc import Sequence

from threefs_client import paths
from threefs_client.context import ClientContext

from threefs.errors import NotFound
from threefs.paging import next_place
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_mount.cache.cached_listing import SMALL_DIRECTORY, CachedListing
from threefs_mount.cache.dirent_columns import Attributes, DirentPage
from threefs_mount.cache.statahead import StatAhead
from threefs_mount.kernel import attrs


async def fetch_entries(
    context: ClientContext, directory: int, after: bytes, limit: int
) -> tuple[Sequence[pb.Entry], bool]:
    """Up to `limit` entries behind a name, with attributes; and whether there are more."""
    request = pb.ListRequest(place=paths.inode_place(directory), after=after, limit=limit, attributes=True)
    reply = await context.meta.call(methods.LIST, request, timeout_s=context.options.timeout_s)
    if reply.more:
        next_place("a directory", after, reply.entries[-1].name if reply.entries else None)
    return reply.entries, reply.more


async def fetch_names(
    context: ClientContext,
    statahead: StatAhead,
    directory: int,
    after: bytes,
    limit: int,
    known: CachedListing | None,
    program: int | None,
) -> tuple[DirentPage | None, Attributes | None]:
    """The names behind `after`, and attributes if they came along. The names are None if the directory has not changed
    since `known`. `program` is the one that begins to read the directory. Raises ProtocolError."""
    request = pb.ListNamesRequest(directory=directory, after=after, limit=limit)
    if known is not None:
        request.known = known.token
    if (
        program is not None
        and statahead.begin_listing(directory, program)
        and (known is None or known.only_page is not None)
    ):
        request.attributes_up_to = SMALL_DIRECTORY
    asked_s, generation = context.clock.monotonic(), statahead.invalidations.generation
    try:
        reply = await context.meta.call(methods.LIST_NAMES, request, timeout_s=context.options.timeout_s)
    except NotFound:  # it was removed while it was open
        return attrs.dirent_page(pb.ListNamesReply()), None
    found = None if reply.unchanged else attrs.dirent_page(reply)
    if found is not None and found.more:
        next_place("a directory", after, found.last if len(found) else None)
    if reply.attributes:
        return found, Attributes(list(reply.attributes), asked_s, generation)
    small = known.only_page if found is None and known is not None else found
    if program is not None and small is not None and not small.more and len(small) <= SMALL_DIRECTORY:
        statahead.listed_without_attributes(directory, program, context.clock.monotonic())
    return found, None
