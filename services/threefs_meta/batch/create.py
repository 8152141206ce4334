"""New files, one at a time or several together."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import takewhile
from typing import NamedTuple

from threefs.errors import ThreefsError
from threefs.rpc.preencoded import PreencodedReply, head
from threefs.wire import meta_pb2 as pb
from threefs_meta.access import permissions
from threefs_meta.access.credentials import Credentials, made_by
from threefs_meta.access.entry_permissions import writable_parent
from threefs_meta.context import Context
from threefs_meta.file import layout_policy
from threefs_meta.file.inode_factory import InodeSpec, new_inode, set_file_layout
from threefs_meta.lease import write_sessions
from threefs_meta.lease.delegation import Creator
from threefs_meta.resolve import paths
from threefs_meta.resolve.resolver import resolve
from threefs_meta.store import keys
from threefs_meta.store.namespace import Namespace

#: Of CreateReply.inode, as protobuf writes it.
_INODE_TAG = b"\x0a"

Reply = PreencodedReply[pb.CreateReply]


def maker_of(request: pb.CreateRequest, actor: Credentials) -> Credentials:
    """To whom the file will belong. Raises InvalidArgument."""
    permissions.check_mode(request.mode)
    write_sessions.check_id(request.session)
    permissions.check_wanted(request.access)
    return made_by(actor, request)


async def draft(context: Context, request: pb.CreateRequest, maker: Credentials, directory: pb.Inode) -> pb.Inode:
    """The file, but for its name. Raises InvalidArgument, Unavailable."""
    inode = await new_inode(context, directory, InodeSpec(pb.FILE, maker, request.mode, request.umask))
    set_file_layout(context, inode, request.layout, directory)
    return inode


async def reply(
    context: Context,
    ns: Namespace,
    request: pb.CreateRequest,
    inode: pb.Inode,
    body: bytes,
    client: bytes,
    *,
    created: bool = False,
) -> Reply:
    """With the client's lease, if it wants a session. `body` is the inode once more."""
    lease = 0
    if request.session:
        lease = await write_sessions.begin(ns, inode.inode, request.session, client, context.clock.wall_ns())
    more = _reply_tail(created, lease, context.quotas.is_over(inode))
    return PreencodedReply(pb.CreateReply, (head(_INODE_TAG, len(body)), body, more))


@lru_cache(maxsize=256)
def _reply_tail(created: bool, lease: int, over_quota: bool) -> bytes:
    """What a reply has besides the inode: the same for all that a client makes."""
    return pb.CreateReply(created=created, lease=lease, over_quota=over_quota).SerializeToString()


async def create_files(
    context: Context, ns: Namespace, requests: Iterable[pb.CreateRequest], actor: Credentials, creator: Creator
) -> list[tuple[Reply, bytes]]:
    """Make the first of these, as many as are new files in directories that exist: per file the reply, and what the
    creator is delegation_reply of a claim.

    It comes out as if each were made by itself. But each step is made for all of them before the next one: the
    processor has the code of one step at hand, and not that of all, which makes it twice as quick. Raises what any of
    them would; then what was written is to be taken back.
    """
    plans = await _plans(ns, requests, actor)
    inodes = await _draft_all(context, plans)
    bodies: list[tuple[bytes, bytes]] = []
    for inode, plan in zip(inodes, plans, strict=True):
        creator.places = (plan.request.place,)
        bodies.append((await ns.add(plan.parent, plan.name, inode), ns.take_delegation_reply()))
    return [
        (await reply(context, ns, plan.request, inode, body, creator.client, created=True), delegation_reply)
        for inode, (body, delegation_reply), plan in zip(inodes, bodies, plans, strict=True)
    ]


class _Plan(NamedTuple):
    request: pb.CreateRequest
    maker: Credentials
    directory: pb.Inode
    parent: int  # its number
    name: bytes

    def is_alike(self, other: "_Plan") -> bool:
        """But for the name and what is drawn for it, the same file."""
        mine, its = self.request, other.request
        return (
            self.directory is other.directory
            and self.maker is other.maker
            and mine.mode == its.mode
            and mine.umask == its.umask
            and not mine.HasField("layout")
            and not its.HasField("layout")
        )


async def _plans(ns: Namespace, requests: Iterable[pb.CreateRequest], actor: Credentials) -> Sequence[_Plan]:
    """Of the first that are such files. Writes nothing."""
    plans: dict[bytes, _Plan] = {}  # by the keys of the entries
    directories: dict[tuple[int, bytes], tuple[pb.Inode, int]] = {}  # that were walked to
    try:
        for request in requests:
            maker, place = maker_of(request, actor), request.place
            above, _, name = place.path.rpartition(b"/")
            found = directories.get((place.base, above))
            if found is None or not paths.is_plain(name) or len(place.path) > paths.MAX_PATH_BYTES:
                resolved = await resolve(ns, place, maker, follow=not request.exclusive)
                if resolved.entry is not None or resolved.rest:
                    break
                found = await writable_parent(ns, resolved, maker), resolved.parent
                if resolved.name == name:
                    directories[place.base, above] = found
                name = resolved.name
            row = keys.entry(found[1], name)
            if row in plans or request.unnamed:
                break
            plans[row] = _Plan(request, maker, *found, name)
    except ThreefsError:
        pass  # whoever makes that one by itself will meet it again
    there = await ns.tx.get_many(list(plans))
    return [plan for plan, _ in zip(plans.values(), takewhile(_is_none, there), strict=False)]


def _is_none(value: bytes | None) -> bool:
    return value is None


async def _draft_all(context: Context, plans: Iterable[_Plan]) -> list[pb.Inode]:
    """Mostly they are alike, and to copy one is three times as quick as to make one."""
    drafts: list[pb.Inode] = []
    like: _Plan | None = None
    for plan in plans:
        if like is None or not plan.is_alike(like):
            like = plan
            drafts.append(await draft(context, plan.request, plan.maker, plan.directory))
            continue
        inode = pb.Inode()
        inode.CopyFrom(drafts[-1])
        inode.inode = await context.allocator.allocate()
        layout_policy.draw_placement(inode.layout, context.routing(), context.random)
        drafts.append(inode)
    return drafts
