"""Renewals, and holds of files that are open for reading."""

import pytest
from threefs_meta.ops.renew_lease import MOST_HOLDS, renew_lease
from threefs_meta.store import keys

from tests.harness.meta_harness import CLIENT, SESSION, MetaBench, run
from threefs.errors import InvalidArgument
from threefs.wire import meta_pb2 as pb

OTHER = b"o" * 16


def test_a_lease_keeps_its_number_as_long_as_it_is_renewed() -> None:
    async def test(fs: MetaBench) -> None:
        made = await fs.create("/a", session=SESSION)
        assert made.lease and (await fs.renew()).lease == made.lease
        for _ in range(3):
            await fs.renew()
            for _ in range(5):
                fs.clock.advance(fs.context.logical_clock.tick_s)
                await fs.context.logical_clock.poll()
            await fs.lease_reaper.reap()
        assert (await fs.renew()).lease == made.lease
        await fs.pass_lease()
        await fs.lease_reaper.reap()
        assert (await fs.renew()).lease > made.lease

    run(test)


def test_a_session_can_begin_the_lease_and_so_can_a_renewal() -> None:
    async def test(fs: MetaBench) -> None:
        lease = (await fs.renew()).lease
        assert lease and (await fs.create("/a", session=SESSION)).lease == lease
        assert (await fs.create("/b")).lease == 0, "nothing is held"

    run(test)


def test_a_removed_file_that_is_held_stays_until_it_is_dropped() -> None:
    async def test(fs: MetaBench) -> None:
        file = (await fs.create("/a", session=SESSION)).inode
        await fs.write(file, 0, b"data")
        await fs.close(file, SESSION, length_hint=4, written=True)
        await fs.remove("/a")
        reply = await fs.renew(OTHER, hold=[file.inode, 12345])
        assert list(reply.gone) == [12345]
        await fs.renew(CLIENT, hold=[file.inode])
        for drop_of in (CLIENT, OTHER):
            await fs.collect_all()
            assert fs.chunk_numbers(file) == [0]
            await fs.renew(drop_of, drop=[file.inode])
        await fs.collect_all()
        assert fs.chunk_numbers(file) == []

    run(test, conflict_rate=0.1, unknown_rate=0.1, seed=5)


def test_a_client_can_give_up_everything_at_once() -> None:
    async def test(fs: MetaBench) -> None:
        made = await fs.create("/a", session=SESSION)
        file = made.inode
        await fs.write(file, 0, b"data")
        assert (await fs.renew(end=made.lease)).lease == 0
        await fs.lease_reaper.reap()
        assert (await fs.stat("/a")).length == 4, "settled in its name"
        await fs.remove("/a")
        await fs.collect_all()
        assert fs.chunk_numbers(file) == []

    run(test)


def test_limits() -> None:
    async def test(fs: MetaBench) -> None:
        for wrong in ({"client": b"x"}, {"hold": range(MOST_HOLDS + 1)}, {"drop": range(MOST_HOLDS + 1)}):
            with pytest.raises(InvalidArgument):
                await fs.renew(**wrong)
        await fs.renew(hold=range(1, MOST_HOLDS + 1), drop=range(MOST_HOLDS))

    run(test)


def test_a_request_that_comes_late_changes_nothing() -> None:
    """It says that a file is closed, which has been opened again since it was sent."""

    async def test(fs: MetaBench) -> None:
        file = (await fs.create("/a")).inode
        late = pb.RenewLeaseRequest(client=CLIENT, drop=[file.inode], number=1)
        lease = (await renew_lease(fs.context, pb.RenewLeaseRequest(client=CLIENT, hold=[file.inode], number=2))).lease
        assert lease
        for _ in range(2):
            assert (await renew_lease(fs.context, late)).lease == lease
            assert await fs.engine.begin().get_range(*keys.holds(file.inode))
        late.number = 2
        assert (await renew_lease(fs.context, late)).lease == lease
        assert not await fs.engine.begin().get_range(*keys.holds(file.inode)), "sent again, it is made again"

    run(test)
