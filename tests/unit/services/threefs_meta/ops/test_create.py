"""Creating files."""

import asyncio
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threefs_meta.access.credentials import TRUSTED, Credentials
from threefs_meta.batch.txn_memo import TxnMemo
from threefs_meta.lease.delegation import Creator
from threefs_meta.ops.create import create, create_batch
from threefs_meta.ops.set_layout import set_layout
from threefs_meta.store import keys

from tests.harness.meta_harness import CLIENT, SESSION, MetaBench, at, with_bench
from threefs.errors import (
    AlreadyExists,
    InvalidArgument,
    IsADirectory,
    NameTooLong,
    NotADirectory,
    NotFound,
    QuotaExceeded,
    TooManySymlinks,
)
from threefs.layout import MIN_CHUNK_BYTES
from threefs.wire import meta_pb2 as pb


async def test_a_new_file_is_there_empty_and_laid_out(bench: MetaBench) -> None:
    made = await bench.create("/a", mode=0o640)
    assert made.created and made.inode.type == pb.FILE and made.inode.nlink == 1 and made.inode.length == 0
    assert made.inode.mode == 0o640
    assert made.inode.layout.chunk_bytes == 1 << 20
    assert made.inode.layout.stripe == len(bench.cluster.routing.tables[1])  # type: ignore[index]
    assert await bench.stat("a") == made.inode
    again = await bench.create("//a/")
    assert not again.created and again.inode == made.inode


async def test_exclusive_parents_and_directories(bench: MetaBench) -> None:
    await bench.create("/a")
    with pytest.raises(AlreadyExists):
        await bench.create("/a", exclusive=True)
    with pytest.raises(NotFound):
        await bench.create("/x/y/z")
    await bench.create("/x/y/z", parents=True)
    assert await bench.names("/x/y") == ["z"]
    for directory in ("/x", "/", "/x/.", "/x/y/.."):
        with pytest.raises(IsADirectory):
            await bench.create(directory)
    with pytest.raises(NotADirectory):
        await bench.create("/a/b")
    with pytest.raises(NotFound):
        await bench.create("/new/../b", parents=True)


async def test_a_link_in_the_last_component_is_followed_unless_exclusive(bench: MetaBench) -> None:
    await bench.mkdir("/d")
    await bench.symlink("d/file", "/link")
    with pytest.raises(AlreadyExists):
        await bench.create("/link", exclusive=True)
    made = await bench.create("/link")
    assert made.created and await bench.names("/d") == ["file"]
    await bench.symlink("loop", "/loop")
    with pytest.raises(TooManySymlinks):
        await bench.create("/loop")


async def test_creates_in_one_directory_do_not_conflict_and_do_not_write_the_parent(bench: MetaBench) -> None:
    await bench.mkdir("/d")
    before = await bench.stat("/d")
    await bench.create("/d/first")  # has taken a block of inode numbers
    commits = bench.engine._history.version
    await asyncio.gather(*(bench.create(f"/d/{n}") for n in range(50)))
    assert bench.engine._history.version == commits + 50, "each in one transaction"
    assert bench.clock.monotonic() == 1000.0, "nobody had to pause and try again"
    tx = bench.engine.begin()
    assert await tx.get(keys.inode(before.inode)) is not None
    changed = {key for keys_of in bench.engine._history._commits[-50:] for key in keys_of}
    assert keys.inode(before.inode) not in changed


async def test_the_directory_shows_when_it_was_changed(bench: MetaBench) -> None:
    await bench.mkdir("/d")
    before = await bench.stat("/d")
    bench.clock.advance(5)
    await bench.create("/d/a")
    after = await bench.stat("/d")
    assert after.mtime_ns == after.ctime_ns == before.mtime_ns + 5 * 10**9


async def test_layouts_are_inherited_and_checked(bench: MetaBench) -> None:
    await bench.mkdir("/d", layout=pb.Layout(chunk_bytes=MIN_CHUNK_BYTES))
    await bench.mkdir("/d/e")
    made = (await bench.create("/d/e/f", layout=pb.Layout(stripe=1))).inode
    assert (made.layout.chunk_bytes, made.layout.stripe) == (MIN_CHUNK_BYTES, 1)
    for layout in (pb.Layout(chunk_bytes=100_000), pb.Layout(stripe=3), pb.Layout(table_id=9)):
        with pytest.raises(InvalidArgument):
            await bench.create("/d/bad", layout=layout)
    assert await bench.names("/d") == ["e"]


@pytest.mark.parametrize(
    ("path", "error"),
    [
        (b"/" + b"n" * 256, NameTooLong),
        (b"/d" * 2049, NameTooLong),
        (b"/a\0b", InvalidArgument),
        (b"/a\0b", InvalidArgument),
    ],
)
async def test_bad_names_are_refused(bench: MetaBench, path: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        await create(bench.context, pb.CreateRequest(mutation=bench.mutation(), place=at(path)))
    assert await bench.names("/") == []


async def test_bad_arguments_are_refused(bench: MetaBench) -> None:
    good = pb.Mutation(client=CLIENT, request=99)
    for request in (
        pb.CreateRequest(place=at("/a")),
        pb.CreateRequest(mutation=pb.Mutation(client=b"short"), place=at("/a")),
        pb.CreateRequest(mutation=good, place=at("/a"), mode=0o10000),
        pb.CreateRequest(mutation=good, place=at("/a"), session=b"short"),
    ):
        with pytest.raises(InvalidArgument):
            await create(bench.context, request)
    with pytest.raises(NotFound):
        await create(bench.context, pb.CreateRequest(mutation=good, place=at("a", base=12345)))


async def test_truncate_frees_what_was_there(bench: MetaBench) -> None:
    made = (await bench.create("/a", session=SESSION)).inode
    await bench.write(made, 0, b"x" * 100)
    await bench.close(made, SESSION, length_hint=100, written=True)
    assert (await bench.stat("/a")).length == 100
    again = await bench.create("/a", truncate=True)
    assert not again.created and again.inode.length == 0
    assert again.inode.truncate_version == made.truncate_version + 1
    assert bench.chunk_numbers(made) == []


async def test_sent_again_it_returns_the_first_result(bench: MetaBench) -> None:
    request = pb.CreateRequest(mutation=bench.mutation(), place=at("/a"), exclusive=True, session=SESSION)
    first = await create(bench.context, request)
    assert await create(bench.context, request) == first
    await bench.remove("/a")
    assert await create(bench.context, request) == first, "even when the world has moved on"
    assert await bench.names("/") == []


async def test_the_same_request_twice_at_once_makes_one_file(bench: MetaBench) -> None:
    request = pb.CreateRequest(mutation=bench.mutation(), place=at("/a"), exclusive=True)
    first, second = await asyncio.gather(create(bench.context, request), create(bench.context, request))
    assert first == second


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.trouble(conflict_rate=0.2, unknown_rate=0.2)
async def test_conflicts_and_unknown_commits_are_overcome(bench: MetaBench, seed: int) -> None:
    await asyncio.gather(*(bench.create(f"/{n}", exclusive=True) for n in range(40)))
    assert len(await bench.names("/")) == 40


async def made(fs: MetaBench, *requests: pb.CreateRequest, actor: Credentials = TRUSTED) -> list[pb.CreateReply]:
    tx = fs.engine.begin()
    ns = fs.context.namespace(tx, TxnMemo(), Creator(CLIENT, 1))
    replies = await create_batch(fs.context, ns, requests, actor, CLIENT)
    assert not any(delegation for _, delegation in replies), "no directory is delegated"
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
@with_bench
async def test_each_is_as_if_it_were_made_by_itself(fs: MetaBench, wanted: list[dict[str, object]]) -> None:

    async def plant(fs: MetaBench) -> None:
        for name in ("plain", "group", "listed", "striped"):
            await fs.mkdir(f"/{name}")
        await fs.set("/group", mode=0o2777, gid=8)
        acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", tag, 7, 0) for tag in (1, 4, 32))
        await fs.set_xattr("/listed", b"system.posix_acl_default", acl)
        layout = pb.SetLayoutRequest(mutation=fs.mutation(), place=at("/striped"), layout=pb.Layout(stripe=2))
        await set_layout(fs.context, layout)

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
