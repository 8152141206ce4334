"""A batch finds what a walk finds for each place, whatever the places are."""

from hypothesis import given
from hypothesis import strategies as st
from threefs_meta.access.credentials import TRUSTED, Credentials
from threefs_meta.resolve.batch_resolver import BatchResolver, Found
from threefs_meta.resolve.resolver import find
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import run_readonly

from tests.harness.meta_harness import MetaBench, with_bench
from threefs.errors import ThreefsError
from threefs.wire import meta_pb2 as pb

part = st.sampled_from(
    [b"a", b"b", b"closed", b"link", b"up", b"loop", b"f", b"none", b".", b"..", b"", b"n" * 256, b"\0"]
)
path = st.lists(part, max_size=5).map(b"/".join) | st.sampled_from(
    [b"a/" * 2500, b"./" * 2047 + b"a/f", b"./" * 2047 + b"a"]
)
place = st.builds(pb.Place, base=st.integers(0, 9), path=path)


def shown(found: Found) -> pb.Inode | int:
    return pb.Inode.FromString(found) if isinstance(found, bytes) else found.code


@given(st.lists(place, max_size=30), st.integers(0, 9), st.booleans(), st.booleans())
@with_bench
async def test_as_a_walk_would(
    bench: MetaBench, places: list[pb.Place], base: int, follow: bool, trusted: bool
) -> None:
    actor = TRUSTED if trusted else Credentials(7, 7, frozenset(), False)

    async def one(ns: Namespace, wanted: pb.Place) -> pb.Inode | int:
        try:
            _, inode = await find(ns, wanted, actor, follow=follow)
            return await ns.with_times(inode)
        except ThreefsError as error:
            return error.code

    async def close(bench: MetaBench, inode: pb.Inode) -> None:
        tx = bench.engine.begin()
        ns = Namespace(tx)
        stored = await ns.require_inode(inode.inode)
        stored.mode = 0o700
        ns.put_inode(stored)
        await tx.commit()

    await bench.mkdir("/a/b", parents=True)
    await bench.mkdir("/closed")
    await bench.create("/closed/f")
    await bench.create("/a/f")
    await bench.symlink("/a/b", "/a/link")
    await bench.symlink("../a", "/a/up")
    await bench.symlink("loop", "/loop")
    closed = await bench.stat("/closed")
    await close(bench, closed)

    async def work(ns: Namespace) -> None:
        resolver = BatchResolver(ns, actor, follow=follow)
        half = len(places) // 2
        found = [*await resolver.find_places(places[:half]), *await resolver.find_places(places[half:])]
        assert [shown(one) for one in found] == [await one(ns, wanted) for wanted in places]
        below = [pb.Place(base=base, path=place.path) for place in places]
        found = await resolver.find(base, [place.path for place in below])
        assert [shown(one) for one in found] == [await one(ns, wanted) for wanted in below]

    await run_readonly(bench.context, work)
