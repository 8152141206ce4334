"""Owners that wait for each other: exactly one of them is told."""

import asyncio

import pytest
from threefs_meta.locks import deadlock
from threefs_meta.ops.lock import lock
from threefs_meta.store import keys

from tests.harness import damage
from tests.harness.meta_harness import MetaBench
from threefs.errors import Deadlock, InvalidArgument, Locked
from threefs.wire import meta_pb2 as pb

CLIENTS = [bytes([number]) * 16 for number in range(1, 9)]


async def ask(
    fs: MetaBench, client: int, inode: int, *, owner: int = 1, at: int = 0, wait: bool = True, end_wait: bool = False,
    kind: pb.LockType = pb.EXCLUSIVE,
) -> pb.LockReply:  # fmt: skip
    wanted = pb.FileLock(kind=pb.RECORD_LOCK, type=kind, owner=owner, start=at, end=at)
    mutation = pb.Mutation(client=CLIENTS[client], request=fs.mutation().request)
    request = pb.LockRequest(mutation=mutation, inode=inode, lock=wanted, wait=wait, end_wait=end_wait)
    return await lock(fs.context, request)


async def files(fs: MetaBench, count: int) -> list[int]:
    return [(await fs.create(f"/{number}")).inode.inode for number in range(count)]


async def records(fs: MetaBench) -> int:
    return len(await fs.engine.begin().get_range(*keys.WAITS))


@pytest.mark.parametrize("length", [2, 3, 8])
async def test_the_last_owner_of_a_circle_gets_an_error_and_the_others_get_their_locks(
    bench: MetaBench, length: int
) -> None:
    inodes = await files(bench, length)
    for number, inode in enumerate(inodes):
        await ask(bench, number, inode)
    for number in range(length - 1):
        assert (await ask(bench, number, inodes[number + 1])).blocked
    with pytest.raises(Deadlock):
        await ask(bench, length - 1, inodes[0])
    with pytest.raises(Locked):
        await ask(bench, 0, inodes[1])
    await ask(bench, length - 1, inodes[-1], kind=pb.UNLOCK)
    for number in reversed(range(length - 1)):
        assert not (await ask(bench, number, inodes[number + 1])).blocked
        await ask(bench, number, inodes[number + 1], kind=pb.UNLOCK)
        await ask(bench, number, inodes[number], kind=pb.UNLOCK)
    assert await records(bench) == 0


async def test_a_wait_that_cannot_be_read_stops_nobody_and_the_next_request_replaces_it(bench: MetaBench) -> None:
    first, second = await files(bench, 2)
    await ask(bench, 0, first)
    await ask(bench, 1, second)
    assert (await ask(bench, 1, first)).blocked
    await damage.put(bench, keys.wait(CLIENTS[1], 1), b"\1damaged")
    assert (await ask(bench, 2, second)).blocked, "its holder waits for nobody knows what"
    assert (await ask(bench, 1, first)).blocked
    with pytest.raises(Deadlock):
        await ask(bench, 0, second)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.trouble(conflict_rate=0.1, unknown_rate=0.1)
async def test_of_owners_that_close_a_circle_at_once_one_gets_an_error(bench: MetaBench, seed: int) -> None:
    inodes = await files(bench, 3)
    for number, inode in enumerate(inodes):
        await ask(bench, number, inode)
    asked = [ask(bench, number, inodes[(number + 1) % 3]) for number in range(3)]
    results = await asyncio.gather(*asked, return_exceptions=True)
    told = [result for result in results if isinstance(result, Deadlock)]
    assert len(told) == 1, results


async def test_owners_of_one_client_differ_and_readers_wait_for_all_in_their_way(bench: MetaBench) -> None:
    one, other = await files(bench, 2)
    await ask(bench, 0, one, owner=1, kind=pb.SHARED)
    await ask(bench, 0, one, owner=2, kind=pb.SHARED)
    await ask(bench, 1, other)
    assert (await ask(bench, 0, other, owner=2)).blocked
    assert (await ask(bench, 2, one)).blocked, "a wait, but no circle"
    with pytest.raises(Deadlock):
        await ask(bench, 1, one)


async def test_an_upgrade_by_two_readers_is_a_circle(bench: MetaBench) -> None:
    (inode,) = await files(bench, 1)
    for client in (0, 1):
        await ask(bench, client, inode, kind=pb.SHARED)
    assert (await ask(bench, 0, inode)).blocked
    with pytest.raises(Deadlock):
        await ask(bench, 1, inode)


async def test_other_bytes_and_waits_that_have_ended_make_no_circle(bench: MetaBench) -> None:
    one, other = await files(bench, 2)
    await ask(bench, 0, one)
    await ask(bench, 1, other)
    assert not (await ask(bench, 0, other, at=9)).blocked
    assert (await ask(bench, 0, other)).blocked
    await ask(bench, 0, other, kind=pb.UNLOCK, wait=False, end_wait=True)
    assert await records(bench) == 0
    assert (await ask(bench, 1, one)).blocked
    await bench.pass_ticks(deadlock.STALE_TICKS + 2)
    assert (await ask(bench, 0, other)).blocked, "who does not ask any more is not waited for"


async def test_waits_of_a_dead_client_go_with_its_lease(bench: MetaBench) -> None:
    (inode,) = await files(bench, 1)
    await ask(bench, 0, inode)
    assert (await ask(bench, 1, inode)).blocked
    await bench.pass_lease()
    await bench.lease_reaper.reap()
    assert await records(bench) == 0


async def test_only_locks_of_ranges_are_looked_at(bench: MetaBench) -> None:
    (inode,) = await files(bench, 1)
    wanted = pb.FileLock(kind=pb.FLOCK, type=pb.SHARED, end=(1 << 64) - 1)
    with pytest.raises(InvalidArgument):
        await lock(bench.context, pb.LockRequest(mutation=bench.mutation(), inode=inode, lock=wanted, wait=True))
