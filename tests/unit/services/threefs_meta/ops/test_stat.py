"""Attributes."""

import pytest
from threefs_meta.ops.stat import MAX_PLACES, access, batch_stat, lookup, stat
from threefs_meta.resolve.resolver import MAX_STEPS, TURNS

from tests.harness.meta_harness import MetaBench, at
from threefs.errors import AccessDenied, InvalidArgument, NameTooLong, NotADirectory, NotFound
from threefs.ids import ROOT
from threefs.wire import meta_pb2 as pb


async def test_of_files_links_and_directories(bench: MetaBench) -> None:
    made = (await bench.create("/a")).inode
    link = await bench.symlink("a", "/l")
    assert await bench.stat("/l") == made
    assert await bench.stat("/l", follow=False) == link and link.length == 1 and link.target == b"a"
    root = await bench.stat("/")
    assert (root.inode, root.type, root.mode) == (1, pb.DIRECTORY, 0o755)


async def test_it_changes_nothing(bench: MetaBench) -> None:
    await bench.create("/a")
    before = bench.engine._history.version
    await bench.stat("/a")
    with pytest.raises(NotFound):
        await bench.stat("/b")
    with pytest.raises(InvalidArgument):
        await stat(bench.context, pb.StatRequest(place=at(b"a\0")))
    assert bench.engine._history.version == before


async def test_what_is_there_and_what_is_not(bench: MetaBench) -> None:
    directory = await bench.mkdir("/d")
    file = (await bench.create("/d/f")).inode
    link = await bench.symlink("f", "/d/l")

    async def find(parent: int, name: bytes) -> pb.Inode:
        return (await lookup(bench.context, pb.LookupRequest(parent=parent, name=name))).inode

    assert await find(directory.inode, b"f") == file
    assert await find(directory.inode, b"l") == link, "links are not followed"
    assert (await find(1, b"d")).inode == directory.inode
    for parent, name, error in (
        (1, b"x", NotFound),
        (99, b"x", NotFound),
        (file.inode, b"x", NotADirectory),
        (1, b"", InvalidArgument),
        (1, b"..", InvalidArgument),
        (1, b"d/f", InvalidArgument),
        (1, b"a\0", InvalidArgument),
        (1, b"n" * 256, NameTooLong),
    ):
        with pytest.raises(error):
            await find(parent, name)


async def test_it_answers_for_links_and_inodes_too(bench: MetaBench) -> None:
    made = (await bench.create("/a", mode=0o640)).inode
    await bench.symlink("a", "/l")
    user = pb.Caller(uid=1, gid=0)
    for place in (at("/a"), at("/l"), at("", made.inode)):
        reply = await access(bench.context, pb.AccessRequest(place=place, wanted=4, follow=True, caller=user))
        assert reply.inode == made
        with pytest.raises(AccessDenied):
            await access(bench.context, pb.AccessRequest(place=place, wanted=2, follow=True, caller=user))
    await access(bench.context, pb.AccessRequest(place=at("/l"), wanted=2, caller=user))  # of the link itself
    with pytest.raises(InvalidArgument):
        await access(bench.context, pb.AccessRequest(place=at("/a"), wanted=8))
    with pytest.raises(NotFound):
        await access(bench.context, pb.AccessRequest(place=at("/b")))


async def test_each_path_has_its_answer_in_order(bench: MetaBench) -> None:
    made = [(await bench.create(f"/{n}")).inode for n in range(300)]
    places = [at(f"/{n}") for n in range(300)]
    reply = (await batch_stat(bench.context, pb.BatchStatRequest(places=places))).parsed()
    assert [result.inode for result in reply.results] == made
    paths = [f"/{n}".encode() for n in range(300)]
    reply = (await batch_stat(bench.context, pb.BatchStatRequest(places=places[:2], paths=paths[2:]))).parsed()
    assert [*(result.inode for result in reply.results), *reply.inodes] == made and not reply.errors
    below = [b"7", b"", b"gone", *(b"%d" % n for n in range(8, 300)), b"8/x"]
    reply = (await batch_stat(bench.context, pb.BatchStatRequest(base=ROOT, paths=below))).parsed()
    assert [inode.inode for inode in reply.inodes] == [made[7].inode, ROOT, 0, *(m.inode for m in made[8:]), 0]
    told = [(error.number, error.code, error.message) for error in reply.errors]
    assert told == [
        (2, NotFound.code, f"inode {ROOT}:gone: no such file or directory"),
        (len(below) - 1, NotADirectory.code, f"8 in inode {ROOT}:8/x is not a directory"),
    ]
    odd = [at("/gone"), at("/1/x"), at(b"\0"), at("n" * 256), at("/")]
    reply = (await batch_stat(bench.context, pb.BatchStatRequest(places=odd))).parsed()
    codes = [NotFound.code, NotADirectory.code, InvalidArgument.code, NameTooLong.code, 0]
    assert [result.code for result in reply.results] == codes


async def test_attributes_are_those_of_a_single_look(bench: MetaBench) -> None:
    await bench.mkdir("/d")
    await bench.symlink("x" * 4000, "/long")
    await bench.symlink("x" * 90, "/short")
    await bench.create("/f")
    await bench.mknod("/p", pb.FIFO)
    await bench.set_xattr("/f", b"user.a", b"1")
    names = ["/d", "/long", "/short", "/f", "/p", "/"]
    reply = (await batch_stat(bench.context, pb.BatchStatRequest(places=[at(name) for name in names]))).parsed()
    assert [result.inode for result in reply.results] == [await bench.stat(name, follow=False) for name in names]
    assert {result.code for result in reply.results} == {0}
    same = pb.BatchStatRequest(paths=[name.encode() for name in names])
    assert list((await batch_stat(bench.context, same)).parsed().inodes) == [one.inode for one in reply.results]
    gone = (await batch_stat(bench.context, pb.BatchStatRequest(places=[at("/gone")]))).parsed()
    assert gone.results[0].message == "/gone: no such file or directory"


async def test_limits(bench: MetaBench) -> None:
    assert not (await batch_stat(bench.context, pb.BatchStatRequest())).parsed().results
    most = (await batch_stat(bench.context, pb.BatchStatRequest(places=[at("/")] * MAX_PLACES))).parsed()
    assert len(most.results) == MAX_PLACES
    for more in ({"places": [at("/")] * (MAX_PLACES + 1)}, {"places": [at("/")], "paths": [b""] * MAX_PLACES}):
        with pytest.raises(InvalidArgument, match=str(MAX_PLACES)):
            await batch_stat(bench.context, pb.BatchStatRequest(**more))


async def test_long_paths_come_to_turns_for_others_and_ordinary_ones_do_not(bench: MetaBench) -> None:
    """1024 paths of 500 steps each kept everybody waiting for two seconds. Here the store itself waits at each step, so
    what is looked at is the count (`turns`)."""

    async def steps_of(fs: MetaBench, request: pb.BatchStatRequest) -> int:
        await TURNS.give()
        reply = (await batch_stat(fs.context, request)).parsed()
        assert all(inode.inode for inode in reply.inodes) and not reply.errors
        return TURNS._steps

    await bench.mkdir("/d")
    for n in range(100):
        await bench.create(f"/d/{n}")
    ordinary = pb.BatchStatRequest(paths=[b"/d/%d" % (n % 100) for n in range(1024)])
    assert 0 < await steps_of(bench, ordinary) < MAX_STEPS // 10
    parts = MAX_STEPS // 4 - 10
    long = [b"/d/" + b"../d/" * (parts // 2) + b"./" * n + b"%d" % n for n in range(5)]
    assert await steps_of(bench, pb.BatchStatRequest(paths=long[:4])) >= 4 * parts - 8
    assert await steps_of(bench, pb.BatchStatRequest(paths=long)) < 2 * parts, "it gave a turn, and began to count anew"
