"""New files that are made together come out as if each were made by itself; what is not a new file ends it."""

import pytest
from threefs_meta.actors import TRUSTED, Actor
from threefs_meta.claims import Adder
from threefs_meta.known import Known
from threefs_meta.new_files import make_together

from tests.support.metadata import CLIENT, SESSION, MetaBench, at, run
from threefs.errors import QuotaExceeded
from threefs.wire import meta_pb2 as pb


async def made(fs: MetaBench, *requests: pb.CreateRequest, actor: Actor = TRUSTED) -> list[pb.CreateReply]:
    tx = fs.engine.begin()
    names = fs.context.names(tx, Known(), Adder(CLIENT, 1))
    replies = await make_together(fs.context, names, requests, actor, Adder(CLIENT, 1))
    assert not any(told for _, told in replies), "nobody has claimed anything"
    await tx.commit()
    return [reply.parsed() for reply, _ in replies]


def new(path: str | bytes, **options: object) -> pb.CreateRequest:
    return pb.CreateRequest(place=at(path), mode=0o640, **options)  # type: ignore[arg-type]


def test_they_are_what_was_asked_for() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/d/e", parents=True)
        layout = pb.Layout(chunk_bytes=1 << 20)
        wanted = [new("/d/1", uid=3), new("/d/e/2", session=SESSION), new("/3", exclusive=True, layout=layout)]
        first, second, third, _ = await made(fs, *wanted, new("/d/e/4", truncate=True, parents=True))
        assert [first.inode, second.inode] == [await fs.stat("/d/1"), await fs.stat("/d/e/2")]
        assert first.inode.uid == 3 and first.created and not first.lease
        assert second.lease, "it has a session"
        assert third.inode.layout.chunk_bytes == 1 << 20

    run(test)


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
def test_where_they_end(end: pb.CreateRequest) -> None:
    async def test(fs: MetaBench) -> None:
        await fs.create("/there")
        await fs.mkdir("/d", mode=0o777)
        await fs.mkdir("/closed", mode=0o700)
        await fs.set("/", mode=0o777)
        actor = Actor(7, 7, frozenset(), False) if end.HasField("caller") else TRUSTED
        names = await fs.names("/")
        assert len(await made(fs, new("/1"), new("/d/2"), end, new("/3"), actor=actor)) == 2
        assert await fs.names("/") == ["1", *names] and await fs.names("/d") == ["2"]
        assert await made(fs, end, new("/3"), actor=actor) == [], "it is for somebody else to say why"

    run(test)


def test_what_ends_all_of_them_is_raised() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/full")
        await fs.set_quota("/full", limit_inodes=1)
        await fs.create("/full/1")
        await fs.count_all()
        with pytest.raises(QuotaExceeded):
            await made(fs, new("/1"), new("/full/2"), new("/3"))

    run(test)
