"""Later steps of a transaction find what they would find without what earlier ones know."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st
from threefs_meta.access.credentials import TRUSTED, Credentials
from threefs_meta.batch.txn_memo import TxnMemo
from threefs_meta.resolve.resolver import Resolution, resolve
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import run_readonly

from tests.harness.meta_harness import MetaBench, with_bench
from threefs.errors import ThreefsError
from threefs.wire import meta_pb2 as pb

part = st.sampled_from([b"a", b"b", b"closed", b"link", b"up", b"f", b"none", b".", b"..", b"", b"n" * 256, b"\0"])
path = st.lists(part, max_size=5).map(b"/".join) | st.just(b"a/" * 2500)
place = st.builds(pb.Place, base=st.integers(0, 9), path=path)


@given(st.lists(place, max_size=30), st.booleans(), st.booleans())
@with_bench
async def test_as_without_it(bench: MetaBench, places: list[pb.Place], follow: bool, trusted: bool) -> None:
    actor = TRUSTED if trusted else Credentials(7, 7, frozenset(), False)

    async def one(ns: Namespace, wanted: pb.Place) -> Resolution | int:
        try:
            return await resolve(ns, wanted, actor, follow=follow)
        except ThreefsError as error:
            return error.code

    await bench.mkdir("/a/b", parents=True)
    await bench.mkdir("/closed", mode=0o700)
    await bench.create("/closed/f")
    await bench.create("/a/f")
    await bench.symlink("/a/b", "/a/link")
    await bench.symlink("../a", "/a/up")

    async def work(ns: Namespace) -> None:
        memo = TxnMemo()
        found = [await one(Namespace(ns.tx, memo=memo), wanted) for wanted in places]
        assert found == [await one(ns, wanted) for wanted in places]

    await run_readonly(bench.context, work)


async def test_directories_that_change_are_not_known_any_more(bench: MetaBench) -> None:
    await bench.mkdir("/a/b", parents=True)
    await bench.create("/a/b/f")
    context = bench.context
    memo = TxnMemo()
    tx = context.engine.begin()
    resolved = await resolve(context.namespace(tx, memo), pb.Place(path=b"a/b/f"), follow=True)
    assert memo.directory_numbers == {(0, b"a/b"): resolved.parent}
    directory = await context.namespace(tx, memo).directory(resolved.parent)
    assert memo.directories == {resolved.parent: directory}
    await context.namespace(tx, memo).put_entry(resolved.parent, b"g", pb.Inode(inode=50, type=pb.FILE), 1)
    assert memo.directory_numbers and memo.directories
    await context.namespace(tx, memo).put_entry(resolved.parent, b"l", pb.Inode(inode=50, type=pb.SYMLINK), 1)
    assert not memo.directory_numbers and not memo.directories
    changes: list[Callable[[Namespace], object]] = [
        lambda ns: ns.clear_entry(resolved.parent, b"l", pb.Inode(inode=50, type=pb.SYMLINK), 1),
        lambda ns: ns.put_inode(directory),
        lambda ns: ns.clear_inode(directory),
    ]
    for change in changes:
        memo.directory_numbers[0, b"a/b"] = resolved.parent
        memo.directories[resolved.parent] = directory
        change(context.namespace(tx, memo))
        assert not memo.directory_numbers and not memo.directories
