"""New files that are made together come out as if each were made by itself; what is not a new file ends it."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threefs_meta.access.credentials import TRUSTED, Credentials
from threefs_meta.batch.create import create_files
from threefs_meta.batch.txn_memo import TxnMemo
from threefs_meta.lease.delegation import Creator
from threefs_meta.ops.create import create
from threefs_meta.ops.set_layout import set_layout

from tests.harness.meta_harness import CLIENT, SESSION, MetaBench, at, run
from threefs.errors import QuotaExceeded
from threefs.wire import meta_pb2 as pb


async def made(fs: MetaBench, *requests: pb.CreateRequest, actor: Credentials = TRUSTED) -> list[pb.CreateReply]:
    tx = fs.engine.begin()
    ns = fs.context.namespace(tx, TxnMemo(), Creator(CLIENT, 1))
    replies = await create_files(fs.context, ns, requests, actor, Creator(CLIENT, 1))
    assert not any(told for _, told in replies), "nobody has claimed anything"
    await tx.commit()
    return [reply.parsed() for reply, _ in replies]


def new(path: str | bytes, **options: object) -> pb.CreateRequest:
    return pb.CreateRequest(place=at(path), mode=0o640, **options)  # type: ignore[arg-type]


async def test_they_are_what_was_asked_for(bench: MetaBench) -> None:
    await bench.mkdir("/d/e", parents=True)
    layout = pb.Layout(chunk_bytes=1 << 20)
    wanted = [new("/d/1", uid=3), new("/d/e/2", session=SESSION), new("/3", exclusive=True, layout=layout)]
    first, second, third, _ = await made(bench, *wanted, new("/d/e/4", truncate=True, parents=True))
    assert [first.inode, second.inode] == [await bench.stat("/d/1"), await bench.stat("/d/e/2")]
    assert first.inode.uid == 3 and first.created and not first.lease
    assert second.lease, "it has a session"
    assert third.inode.layout.chunk_bytes == 1 << 20


#: In what a file is not like most of the others.
differences: list[dict[str, object]] = [
    {},
    {"above": "group"},
    {"above": "listed"},
    {"above": "striped"},
    {"mode": 0o2755},
    {"umask": 0o27},
    {"uid": 5},
    {"session": SESSION},
    {"layout": pb.Layout()},
    {"layout": pb.Layout(chunk_bytes=1 << 16)},
    {"layout": pb.Layout(stripe=1)},
]


@given(st.lists(st.sampled_from(differences), min_size=2, max_size=12))
@settings(max_examples=40)
def test_each_is_as_if_it_were_made_by_itself(wanted: list[dict[str, object]]) -> None:
    async def plant(fs: MetaBench) -> None:
        for name in ("plain", "group", "listed", "striped"):
            await fs.mkdir(f"/{name}")
        await fs.set("/group", mode=0o2777, gid=8)
        acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", tag, 7, 0) for tag in (1, 4, 32))
        await fs.set_xattr("/listed", b"system.posix_acl_default", acl)
        layout = pb.SetLayoutRequest(mutation=fs.mutation(), place=at("/striped"), layout=pb.Layout(stripe=2))
        await set_layout(fs.context, layout)

    async def test(fs: MetaBench) -> None:
        other = await MetaBench().start()
        for bench in (fs, other):
            await plant(bench)
        requests = []
        for number, wish in enumerate(wanted):
            options = {"mode": 0o666, **wish}
            above = options.pop("above", "plain")
            requests.append(pb.CreateRequest(place=at(f"/{above}/{number}"), **options))  # type: ignore[arg-type]
        together = await made(fs, *requests)
        singly = []
        for request in requests:
            request.mutation.CopyFrom(other.mutation())
            singly.append(await create(other.context, request))
        for request, reply in zip(requests, together, strict=True):
            assert await fs.stat(request.place.path.decode()) == reply.inode
        assert len({reply.inode.layout.seed for reply in together}) == len(together), "each lies elsewhere"
        assert [plain(reply) for reply in together] == [plain(reply) for reply in singly]

    run(test)


def plain(reply: pb.CreateReply) -> pb.CreateReply:
    """Without what is drawn, and the moment."""
    for field in ("table_offset", "seed"):
        reply.inode.layout.ClearField(field)
    return reply


@pytest.mark.parametrize(
    "end",
    [
        new("/there"),
        new("/there", exclusive=True),
        new("/1"),
        new("//1"),
        new("/none/x", parents=True),
        new("/there/x"),
        new("/d/.."),
        new("/"),
        new("/d", unnamed=True, session=SESSION),
        new("/none", unnamed=True, session=SESSION),
        new("/x", session=b"short"),
        new(b"/" + b"n" * 256),
        new("/closed/x", caller=pb.Caller(uid=7, gid=7)),
    ],
)
async def test_where_they_end(bench: MetaBench, end: pb.CreateRequest) -> None:
    await bench.create("/there")
    await bench.mkdir("/d", mode=0o777)
    await bench.mkdir("/closed", mode=0o700)
    await bench.set("/", mode=0o777)
    actor = Credentials(7, 7, frozenset(), False) if end.HasField("caller") else TRUSTED
    names = await bench.names("/")
    assert len(await made(bench, new("/1"), new("/d/2"), end, new("/3"), actor=actor)) == 2
    assert await bench.names("/") == ["1", *names] and await bench.names("/d") == ["2"]
    assert await made(bench, end, new("/3"), actor=actor) == [], "it is for somebody else to say why"


async def test_what_ends_all_of_them_is_raised(bench: MetaBench) -> None:
    await bench.mkdir("/full")
    await bench.set_quota("/full", limit_inodes=1)
    await bench.create("/full/1")
    await bench.count_all()
    with pytest.raises(QuotaExceeded):
        await made(bench, new("/1"), new("/full/2"), new("/3"))
