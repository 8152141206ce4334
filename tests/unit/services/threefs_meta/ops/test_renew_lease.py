"""Renewals, and holds of files that are open for reading."""

import pytest
from threefs_meta.ops.renew_lease import MAX_HOLDS, renew_lease
from threefs_meta.store import keys

from tests.harness.meta_harness import CLIENT, SESSION, MetaBench
from threefs.errors import InvalidArgument
from threefs.wire import meta_pb2 as pb

OTHER = b"o" * 16


async def test_a_lease_keeps_its_number_as_long_as_it_is_renewed(bench: MetaBench) -> None:
    made = await bench.create("/a", session=SESSION)
    assert made.lease and (await bench.renew()).lease == made.lease
    for _ in range(3):
        await bench.renew()
        for _ in range(5):
            bench.clock.advance(bench.context.logical_clock.tick_s)
            await bench.context.logical_clock.poll()
        await bench.lease_reaper.reap()
    assert (await bench.renew()).lease == made.lease
    await bench.pass_lease()
    await bench.lease_reaper.reap()
    assert (await bench.renew()).lease > made.lease


async def test_a_session_can_begin_the_lease_and_so_can_a_renewal(bench: MetaBench) -> None:
    lease = (await bench.renew()).lease
    assert lease and (await bench.create("/a", session=SESSION)).lease == lease
    assert (await bench.create("/b")).lease == 0, "nothing is held"


@pytest.mark.trouble(conflict_rate=0.1, unknown_rate=0.1, seed=5)
async def test_a_removed_file_that_is_held_stays_until_it_is_dropped(bench: MetaBench) -> None:
    file = (await bench.create("/a", session=SESSION)).inode
    await bench.write(file, 0, b"data")
    await bench.close(file, SESSION, length_hint=4, written=True)
    await bench.remove("/a")
    reply = await bench.renew(OTHER, hold=[file.inode, 12345])
    assert list(reply.gone) == [12345]
    await bench.renew(CLIENT, hold=[file.inode])
    for drop_of in (CLIENT, OTHER):
        await bench.collect_all()
        assert bench.chunk_numbers(file) == [0]
        await bench.renew(drop_of, drop=[file.inode])
    await bench.collect_all()
    assert bench.chunk_numbers(file) == []


async def test_a_client_can_give_up_everything_at_once(bench: MetaBench) -> None:
    made = await bench.create("/a", session=SESSION)
    file = made.inode
    await bench.write(file, 0, b"data")
    assert (await bench.renew(end=made.lease)).lease == 0
    await bench.lease_reaper.reap()
    assert (await bench.stat("/a")).length == 4, "settled in its name"
    await bench.remove("/a")
    await bench.collect_all()
    assert bench.chunk_numbers(file) == []


async def test_limits(bench: MetaBench) -> None:
    for wrong in ({"client": b"x"}, {"hold": range(MAX_HOLDS + 1)}, {"drop": range(MAX_HOLDS + 1)}):
        with pytest.raises(InvalidArgument):
            await bench.renew(**wrong)
    await bench.renew(hold=range(1, MAX_HOLDS + 1), drop=range(MAX_HOLDS))


async def test_a_request_that_comes_late_changes_nothing(bench: MetaBench) -> None:
    """It says that a file is closed, which has been opened again since it was sent."""
    file = (await bench.create("/a")).inode
    late = pb.RenewLeaseRequest(client=CLIENT, drop=[file.inode], number=1)
    lease = (await renew_lease(bench.context, pb.RenewLeaseRequest(client=CLIENT, hold=[file.inode], number=2))).lease
    assert lease
    for _ in range(2):
        assert (await renew_lease(bench.context, late)).lease == lease
        assert await bench.engine.begin().get_range(*keys.holds(file.inode))
    late.number = 2
    assert (await renew_lease(bench.context, late)).lease == lease
    assert not await bench.engine.begin().get_range(*keys.holds(file.inode)), "sent again, it is made again"


async def test_a_return_that_comes_late_ends_nothing(bench: MetaBench) -> None:
    """Its client has heard no answer, and holds something under the lease again since it has renewed it."""
    lease = (await bench.create("/a", session=SESSION)).lease
    await renew_lease(bench.context, pb.RenewLeaseRequest(client=CLIENT, number=2))
    await renew_lease(bench.context, pb.RenewLeaseRequest(client=CLIENT, number=1, end=lease))
    assert (await renew_lease(bench.context, pb.RenewLeaseRequest(client=CLIENT, number=3))).lease == lease
    assert not (await renew_lease(bench.context, pb.RenewLeaseRequest(client=CLIENT, number=4, end=lease))).lease
    assert (await bench.renew()).lease > lease
