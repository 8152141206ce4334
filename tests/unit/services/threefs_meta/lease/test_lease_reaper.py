"""What silent clients held is given up: all of it, only it, and after any interruption."""

import asyncio

import pytest
from threefs_meta.lease.lease_reaper import LeaseReaper
from threefs_meta.locks.file_locks import END
from threefs_meta.ops.create import create
from threefs_meta.ops.lock import lock
from threefs_meta.ops.open import open_inode
from threefs_meta.store import keys

from tests.harness import damage
from tests.harness.meta_harness import CLIENT, SESSION, MetaBench, at
from threefs.errors import Locked, SessionLost
from threefs.kv import records
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import CutMark, Renewal

DEAD = b"d" * 16
OTHER = b"o" * 16


async def written_by(fs: MetaBench, client: bytes, path: str, session: bytes) -> pb.Inode:
    """Bytes are on the chains, and nobody has told the meta service of them."""
    mutation = pb.Mutation(client=client, request=fs.mutation().request)
    made = await create(fs.context, pb.CreateRequest(mutation=mutation, place=at(path), session=session))
    await fs.write(made.inode, 0, path.encode())
    return made.inode


async def held(fs: MetaBench) -> int:
    ranges = (keys.SESSIONS, keys.HOLDS, keys.ENDED)
    return sum([len(await fs.engine.begin().get_range(*keys_of)) for keys_of in ranges])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.trouble(conflict_rate=0.1, unknown_rate=0.1)
async def test_write_sessions_of_a_dead_client_are_closed_with_their_length(bench: MetaBench, seed: int) -> None:
    files = [await written_by(bench, DEAD, f"/dead{n}", bytes([n]) * 16) for n in range(20)]
    living = await written_by(bench, CLIENT, "/living", SESSION)
    await bench.pass_lease()
    await bench.renew(CLIENT)
    await bench.lease_reaper.reap()
    for number in range(len(files)):
        assert (await bench.stat(f"/dead{number}")).length == len(f"/dead{number}")
    with pytest.raises(SessionLost):
        await bench.close(files[0], bytes(16))
    await bench.close(living, SESSION, length_hint=7, written=True)
    assert await held(bench) == 0


async def test_nothing_is_given_up_before_the_lease_has_run_out(bench: MetaBench) -> None:
    file = await written_by(bench, DEAD, "/a", SESSION)
    for _ in range(6):
        bench.clock.advance(bench.context.logical_clock.tick_s)
        await bench.context.logical_clock.poll()
        await bench.lease_reaper.reap()
    assert (await bench.close(file, SESSION, length_hint=2, written=True)).length == 2


async def test_storage_that_is_away_only_delays(bench: MetaBench) -> None:
    await written_by(bench, DEAD, "/a", SESSION)
    await bench.renew(DEAD, hold=[1])
    await bench.pass_lease()
    bench.storage.down.update(node.address for node in bench.cluster.routing.nodes.values())
    await bench.lease_reaper.reap()
    assert await held(bench) == 2, "the session, and the lease on record"
    bench.storage.down.clear()
    await LeaseReaper(bench.context).reap()  # of another service
    assert await held(bench) == 0 and (await bench.stat("/a")).length == 2


async def test_a_new_lease_of_the_same_client_is_not_touched(bench: MetaBench) -> None:
    old = await written_by(bench, CLIENT, "/old", b"1" * 16)
    await bench.renew(CLIENT, end=(await bench.renew(CLIENT)).lease)
    young = await written_by(bench, CLIENT, "/young", b"2" * 16)
    await bench.lease_reaper.reap()
    with pytest.raises(SessionLost):
        await bench.close(old, b"1" * 16)
    await bench.close(young, b"2" * 16, length_hint=6, written=True)


async def test_a_removed_file_of_a_dead_client_is_collected(bench: MetaBench) -> None:
    file = await written_by(bench, DEAD, "/a", SESSION)
    await bench.renew(DEAD, hold=[file.inode])
    await bench.remove("/a")
    await bench.collect_all()
    assert bench.chunk_numbers(file) == [0]
    await bench.lease_reaper.reap()
    await bench.collect_all()
    assert bench.chunk_numbers(file) == []


async def test_it_runs_by_itself_until_it_is_stopped(bench: MetaBench) -> None:
    await written_by(bench, DEAD, "/a", SESSION)
    bench.lease_reaper.start()
    while await held(bench):
        await asyncio.sleep(0)
    await bench.lease_reaper.stop()
    request = pb.OpenRequest(mutation=bench.mutation(), place=at("/a"), session=SESSION)
    assert (await open_inode(bench.context, request)).lease


async def test_a_release_that_waits_for_its_chain_delays_no_end(bench: MetaBench) -> None:
    """Leases of others, and truncates, were ended when everything was released that had been found before."""
    await written_by(bench, DEAD, "/a", SESSION)
    waits = asyncio.Event()

    async def never(*_: object, **__: object) -> int:
        waits.set()
        return await asyncio.Future()

    bench.chunks.file_length = never  # type: ignore[method-assign]
    bench.lease_reaper.start()
    await waits.wait()
    await bench.renew(OTHER)
    await damage.put(bench, keys.truncation_mark(1), records.encode(CutMark()))
    while await bench.engine.begin().get_range(*keys.RENEWALS) or await bench.engine.begin().get_range(
        *keys.TRUNCATION_MARKS
    ):
        await asyncio.sleep(0)
    await bench.lease_reaper.stop()


async def test_a_file_that_a_dead_client_had_open_for_writing_counts_as_changed(bench: MetaBench) -> None:
    """Its writes within the old length change nothing that the meta service would hear of."""
    file = await bench.close(await written_by(bench, CLIENT, "/a", SESSION), SESSION, length_hint=2, written=True)
    await bench.set("/a", mode=0o4755)
    mutation = pb.Mutation(client=DEAD, request=1)
    await open_inode(bench.context, pb.OpenRequest(mutation=mutation, place=at("/a"), session=bytes(16)))
    before = await bench.stat("/a")
    await bench.write(file, 0, b"X")
    await bench.pass_lease()
    await bench.lease_reaper.reap()
    after = await bench.stat("/a")
    assert after.length == 2 and after.change == before.change + 1
    assert after.mtime_ns == after.ctime_ns == bench.clock.wall_ns() > before.mtime_ns
    assert after.mode == 0o755, "nobody knows whether it was root"


async def test_what_the_client_holds_anew_under_the_same_key_stays(bench: MetaBench) -> None:
    """It comes back between the look at what it held and the end of that."""
    file = (await bench.create("/a")).inode
    numbers = iter(range(100, 200))

    async def locks(client: bytes) -> int:
        wanted = pb.FileLock(kind=pb.FLOCK, type=pb.EXCLUSIVE, owner=1, start=0, end=END)
        mutation = pb.Mutation(client=client, request=next(numbers))
        return (await lock(bench.context, pb.LockRequest(mutation=mutation, inode=file.inode, lock=wanted))).lease

    first = await locks(DEAD)
    await bench.renew(DEAD, hold=[file.inode])
    await bench.pass_lease()
    look, came_back = bench.lease_reaper._page, False

    async def page(of: tuple[bytes, bytes], after: bytes) -> list[tuple[bytes, bytes]]:
        nonlocal came_back
        found = await look(of, after)
        if of == keys.HOLDS and not came_back:
            came_back = True
            assert await locks(DEAD) > first
            await bench.renew(DEAD, hold=[file.inode])
        return found

    bench.lease_reaper._page = page  # type: ignore[method-assign]
    await bench.lease_reaper.reap()
    assert came_back and len(await bench.engine.begin().get_range(*keys.holds(file.inode))) == 1
    with pytest.raises(Locked):
        await locks(CLIENT)


@pytest.mark.parametrize(
    "key",
    [
        keys.session(0, bytes(16)),
        keys.hold(0, bytes(16)),
        keys.lock(0, bytes(16)),
        keys.wait(bytes(16), 0),
        keys.client(bytes(16)),
        keys.renewal(bytes(16)),
        keys.truncation_mark(0),
        keys.inode(0),
    ],
    ids=lambda key: key[:4].decode(),
)
async def test_a_damaged_record_does_not_delay_other_clients(key: bytes) -> None:
    """All of one client and one file that come before those of the others."""
    fs = await MetaBench().start()
    await damage.put(fs, keys.renewal(bytes(16)), records.encode(Renewal()))
    await damage.put(fs, keys.truncation_mark(0), records.encode(CutMark()))
    await damage.put(fs, key, b"\1damaged")
    file = await written_by(fs, DEAD, "/a", SESSION)
    await fs.renew(DEAD, hold=[file.inode])
    await fs.pass_lease()
    await fs.lease_reaper.reap()
    assert (await fs.stat("/a")).length == 2
    assert not await fs.engine.begin().get_range(*keys.sessions(file.inode))
    assert not await fs.engine.begin().get_range(*keys.holds(file.inode))
