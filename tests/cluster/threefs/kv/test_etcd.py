"""What the contract suite does not ask: etcd's own limits, markers of removed keys, stores beside each other."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.harness.etcd import EtcdCluster, needs_etcd
from threefs.env.random import RANDOM
from threefs.errors import Conflict, InvalidSettings, MaybeCommitted, NoSpace, TooLarge, TooOld
from threefs.kv import etcd as module
from threefs.kv.etcd import EtcdEngine
from threefs.kv.etcd_members import Members
from threefs.wire import etcd_pb2 as pb


def run(cluster: EtcdCluster, body: Callable[[EtcdEngine], Awaitable[None]], name: str = "") -> None:
    async def main() -> None:
        engine = await EtcdEngine.open(cluster.addresses, name=name or RANDOM.token(4).hex())
        try:
            await body(engine)
        finally:
            await engine.close()

    asyncio.run(main())


async def put(engine: EtcdEngine, *keys: bytes) -> None:
    tx = engine.begin()
    for key in keys:
        tx.set(key, b"v")
    await tx.commit()


async def clear(engine: EtcdEngine, *keys: bytes) -> None:
    tx = engine.begin()
    for key in keys:
        tx.clear(key)
    await tx.commit()


async def markers(cluster: EtcdCluster, name: str) -> int:
    members = Members(cluster.addresses)
    reply = await members.read(pb.EtcdRange(key=name.encode() + b"/x", range_end=name.encode() + b"/y"))
    await members.close()
    return len(reply.kvs)


def test_a_removal_in_a_range_that_was_read_is_a_conflict(etcd: EtcdCluster) -> None:
    async def body(engine: EtcdEngine) -> None:
        await put(engine, b"a", b"b")
        tx = engine.begin()
        await tx.get_range(b"a", b"z")
        tx.set(b"zz", b"1")
        await clear(engine, b"b")
        with pytest.raises(Conflict):
            await tx.commit()

    run(etcd, body)


def test_markers_are_removed_after_a_while_and_older_transactions_start_over(etcd: EtcdCluster) -> None:
    name = RANDOM.token(4).hex()

    async def body(engine: EtcdEngine) -> None:
        await put(engine, b"a", b"m")
        ranging, pointing, blind = engine.begin(), engine.begin(), engine.begin()
        await ranging.get_range(b"a", b"z")
        await pointing.get(b"a")
        await clear(engine, b"m")
        assert await markers(etcd, name) == 1
        while await markers(etcd, name):
            await clear(engine, *(b"n%d" % number for number in range(module._MAX_MARKERS // 2)))
        for tx in (ranging, pointing, blind):
            tx.set(b"x", b"1")
        with pytest.raises(Conflict):
            await ranging.commit()
        await pointing.commit()
        await blind.commit()
        fresh = engine.begin()
        assert await fresh.get_range(b"a", b"n") == [(b"a", b"v")]
        fresh.set(b"y", b"1")
        await fresh.commit()

    run(etcd, body, name)


def test_markers_that_others_left_are_counted(etcd: EtcdCluster) -> None:
    name = RANDOM.token(4).hex()

    async def leave(engine: EtcdEngine) -> None:
        await clear(engine, *(b"n%d" % number for number in range(module._MAX_MARKERS - 1)))

    async def go_on(engine: EtcdEngine) -> None:
        assert await markers(etcd, name) == module._MAX_MARKERS - 1
        await clear(engine, b"one")
        assert await markers(etcd, name) == 0

    run(etcd, leave, name)
    run(etcd, go_on, name)


def test_long_ranges_come_in_pages(etcd: EtcdCluster) -> None:
    async def body(engine: EtcdEngine) -> None:
        keys = [b"%05d" % number for number in range(1300)]
        await put(engine, *keys)
        tx = engine.begin()
        assert [key for key, _ in await tx.get_range(b"", b"9")] == keys
        assert [key for key, _ in await tx.get_range(b"", b"9", reverse=True)] == keys[::-1]
        assert [key for key, _ in await tx.get_range(b"", b"9", limit=700)] == keys[:700]
        assert await tx.get_many(keys) == [b"v"] * len(keys)

    run(etcd, body)


def test_stores_of_different_names_do_not_see_each_other(etcd: EtcdCluster) -> None:
    async def body(engine: EtcdEngine) -> None:
        await put(engine, b"", b"\xff" * 50)
        other = await EtcdEngine.open(etcd.addresses, name=RANDOM.token(4).hex())
        assert await other.begin().get_range(b"", b"\xff" * 60) == []
        await other.close()

    run(etcd, body)


def test_a_revision_that_was_compacted_is_too_old(etcd: EtcdCluster) -> None:
    async def body(engine: EtcdEngine) -> None:
        tx = engine.begin()
        await tx.get(b"a")
        await put(engine, b"a")
        newest = engine.begin()
        await newest.get(b"a")
        assert isinstance(newest.snapshot, module._AtRevision)
        await compact(etcd, newest.snapshot.revision)
        with pytest.raises(TooOld, match="compacted"):
            await tx.get(b"b")

    run(etcd, body)


async def compact(cluster: EtcdCluster, revision: int) -> None:
    process = await asyncio.create_subprocess_exec(
        "etcdctl", "--endpoints", cluster.addresses[0], "compact", str(revision), env={"ETCDCTL_API": "3"}
    )
    assert await process.wait() == 0


def test_an_etcd_that_takes_too_few_operations_is_refused_at_once(tmp_path: Path, etcd: EtcdCluster) -> None:
    with EtcdCluster(tmp_path, 1, "--max-txn-ops", "128") as small:

        async def body() -> None:
            with pytest.raises(InvalidSettings, match="--max-txn-ops=16384"):
                await EtcdEngine.open(small.addresses)

        asyncio.run(body())


@pytest.mark.parametrize("value", [b"other", None])
def test_a_full_etcd_that_has_made_a_change_does_not_deny_it(
    etcd: EtcdCluster, monkeypatch: pytest.MonkeyPatch, value: bytes | None
) -> None:
    """Of transactions that fill the last room together, it makes some and answers that it is full."""

    async def body(engine: EtcdEngine) -> None:
        await put(engine, b"a", b"b")
        change = engine._members.change

        async def made(request: pb.EtcdTxn) -> pb.EtcdTxnReply:
            await change(request)
            return await refused(request)

        async def refused(request: pb.EtcdTxn) -> pb.EtcdTxnReply:
            raise NoSpace("full")

        for answer, error in ((refused, NoSpace), (made, MaybeCommitted), (refused, NoSpace)):
            tx = engine.begin()
            found = await tx.get(b"b")
            if value is None:
                tx.clear(b"a")
            else:
                tx.set(b"a", value)
            monkeypatch.setattr(engine._members, "change", answer)
            with pytest.raises(error):
                await tx.commit()
            monkeypatch.setattr(engine._members, "change", change)
            assert found == b"v" and await engine.begin().get(b"a") == (b"v" if error is NoSpace else value)
            await put(engine, b"a")

    run(etcd, body)


def test_transactions_that_fill_etcd_together_have_the_outcome_that_was_said(tmp_path: Path) -> None:
    needs_etcd()

    async def body(engine: EtcdEngine) -> None:
        async def fill(key: bytes) -> None:
            tx = engine.begin()
            await tx.get(key)
            tx.set(key, b"v" * 90_000)
            await tx.commit()

        outcomes: list[BaseException | None] = []
        while not any(isinstance(outcome, NoSpace) for outcome in outcomes):
            numbers = range(len(outcomes), len(outcomes) + 64)
            outcomes += await asyncio.gather(*(fill(b"%d" % number) for number in numbers), return_exceptions=True)
        for number, outcome in enumerate(outcomes):
            is_there = await engine.begin().get(b"%d" % number) is not None
            assert is_there == (outcome is None) or isinstance(outcome, MaybeCommitted), (number, outcome)

    with EtcdCluster(tmp_path, 1, "--quota-backend-bytes", str(8 << 20)) as small:
        run(small, body)


def test_what_is_larger_than_etcd_takes_says_so(etcd: EtcdCluster) -> None:
    """Removals count twice, so the port's limit can be more than etcd's."""

    async def body(engine: EtcdEngine) -> None:
        tx = engine.begin()
        for number in range(99):
            tx.clear(b"%d" % number + b"k" * 9_990)
        with pytest.raises(TooLarge, match=r"--max-request-bytes.*198 operations"):
            await tx.commit()

    run(etcd, body)
