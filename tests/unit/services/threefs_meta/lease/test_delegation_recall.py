"""No name is added to a directory that is delegated to another client, until that delegation has ended."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable

import pytest
from threefs_meta.batch.batch_transaction import run_batch
from threefs_meta.context import Context
from threefs_meta.lease import delegation_recall
from threefs_meta.lease.delegation import DelegationHeld
from threefs_meta.ops.create import create
from threefs_meta.ops.delegate import delegate, return_delegation
from threefs_meta.ops.fsck_recheck import fsck_recheck
from threefs_meta.ops.link import link
from threefs_meta.ops.mkdir import mkdir
from threefs_meta.ops.remove import remove
from threefs_meta.ops.rename import rename

from tests.harness.clocks import SteppedClock
from tests.harness.meta_harness import CLIENT, MetaBench, at
from tests.unit.services.threefs_meta.ops.test_delegate import OTHER, delegated, stored
from threefs.background import cancel_and_wait
from threefs.ids import ROOT
from threefs.leases import DELEGATION_RECALL_S
from threefs.wire import meta_pb2 as pb


async def plant(fs: MetaBench) -> int:
    await fs.mkdir("/d")
    await fs.mkdir("/kept")
    for path in ("/f", "/d/old", "/kept/g"):
        await fs.create(path)
    return (await fs.stat("/d")).inode


ADDITIONS: list[Callable[[MetaBench], Awaitable[object]]] = [
    lambda fs: fs.create("/d/new"),
    lambda fs: fs.create("/d/sub/new", parents=True),
    lambda fs: fs.mkdir("/d/new"),
    lambda fs: fs.mkdir("/d/new/below", parents=True),
    lambda fs: fs.mknod("/d/new", pb.FIFO),
    lambda fs: fs.symlink("x", "/d/new"),
    lambda fs: fs.link("/f", "/d/new"),
    lambda fs: fs.rename("/f", "/d/new"),
    lambda fs: fs.rename("/d/old", "/d/new"),
    lambda fs: fs.rename("/f", "/d/old"),
    lambda fs: fs.rename("/f", "/d/old", exchange=True),
    lambda fs: fs.rename("/d/old", "/f", exchange=True),
]


@pytest.mark.parametrize("number", range(len(ADDITIONS)))
async def test_every_addition_waits(bench: MetaBench, number: int) -> None:
    directory = await plant(bench)
    assert await delegated(bench, directory, OTHER)
    began_s = bench.clock.monotonic()
    await ADDITIONS[number](bench)
    assert bench.clock.monotonic() - began_s >= DELEGATION_RECALL_S
    assert not (await stored(bench, directory)).client


async def test_removals_and_other_directories_do_not_wait(bench: MetaBench) -> None:
    directory = await plant(bench)
    assert await delegated(bench, directory, OTHER)
    began_s = bench.clock.monotonic()
    await bench.rename("/d/old", "/moved")
    await bench.create("/d2")
    await bench.remove("/d")
    assert bench.clock.monotonic() == began_s


async def test_what_services_add_waits(bench: MetaBench) -> None:
    """Into the trash, and into /lost+found."""
    await plant(bench)
    await bench.set_trash("/kept", 60)
    assert await delegated(bench, ROOT, OTHER)
    began_s = bench.clock.monotonic()
    await bench.remove("/kept/g")
    assert bench.clock.monotonic() == began_s  # /.trash is there
    inode = (await bench.create("/kept/lost")).inode
    ns = bench.context.namespace(bench.engine.begin())
    ns.clear_entry((await bench.stat("/kept")).inode, b"lost", inode, 1)
    await ns.tx.commit()
    subject = pb.FsckSubject(inode=inode.inode)
    request = pb.FsckRecheckRequest(mutation=bench.mutation(), subjects=[subject], repair=True)
    assert [one.repaired for one in (await fsck_recheck(bench.context, request)).findings] == [True]
    assert bench.clock.monotonic() - began_s >= DELEGATION_RECALL_S and "lost+found" in await bench.names("/")


async def test_the_holder_of_a_delegation_does_not_wait_and_learns_of_it(bench: MetaBench) -> None:
    directory = await plant(bench)
    number = await delegated(bench, directory)
    began_s = bench.clock.monotonic()
    context = bench.context
    place = at("new", directory)
    made = pb.CreateRequest(mutation=bench.mutation(), place=place)
    reply = await create(context, made)
    assert (reply.delegation, reply.recalled) == (number, 0)
    again = await create(context, made)
    assert again.inode == reply.inode and not again.delegation and not again.recalled
    moving = pb.RenameRequest(mutation=bench.mutation(), source=place, destination=at("r", directory))
    assert (await rename(context, moving)).delegation == number
    linking = pb.LinkRequest(mutation=bench.mutation(), source=at("/f"), destination=at("l", directory))
    assert (await link(context, linking)).delegation == number
    making = pb.MkdirRequest(mutation=bench.mutation(), place=at("elsewhere"))
    assert not (await mkdir(context, making)).delegation
    existing = pb.CreateRequest(mutation=bench.mutation(), place=at("r", directory))
    assert not (await create(context, existing)).delegation
    assert await delegation_recall._recall_or_clear(context, DelegationHeld(directory, CLIENT, number), None)
    making = pb.MkdirRequest(mutation=bench.mutation(), place=at("m", directory))
    reply_of_mkdir = await mkdir(context, making)
    assert (reply_of_mkdir.delegation, reply_of_mkdir.recalled) == (0, number)
    assert (await stored(bench, directory)).client == CLIENT, "it is not free before its client gives it back"
    assert bench.clock.monotonic() == began_s


async def test_many_changes_wait_together_for_a_recall(bench: MetaBench) -> None:
    directory = await plant(bench)
    mutation = bench.mutation()
    bench._request += 10
    changes = [pb.Change(create=pb.CreateRequest(place=at(f"{one}", directory))) for one in range(4)]
    changes += [
        pb.Change(create=pb.CreateRequest(place=at("e"))),
        pb.Change(remove=pb.RemoveRequest(place=at("/f"))),
    ]
    request = pb.BatchRequest(mutation=mutation, changes=changes)
    assert await delegated(bench, directory, OTHER)
    began_s = bench.clock.monotonic()
    done = (await run_batch(bench.context, request)).parsed()
    assert bench.clock.monotonic() - began_s >= DELEGATION_RECALL_S
    assert not any(one.code or one.retry_alone or one.create.delegation for one in done.results)
    await bench.pass_ticks(6)
    number = await delegated(bench, directory)
    for change in changes[:5]:
        change.create.place.path += b"!"
    request = pb.BatchRequest(mutation=bench.mutation(), changes=changes[:5])
    bench._request += 5
    done = (await run_batch(bench.context, request)).parsed()
    assert [one.create.delegation for one in done.results] == [number] * 4 + [0]
    assert [one.create.delegation for one in (await run_batch(bench.context, request)).parsed().results] == [0] * 5


async def test_what_the_holder_does_not_expect_counts_as_somebody_elses(bench: MetaBench) -> None:
    """A name behind a link that it did not know, and a change that was held up since before it delegated."""
    directory = await plant(bench)
    await bench.symlink("behind", "/d/link")
    late = pb.CreateRequest(mutation=bench.mutation(), place=at("late", directory))
    for request in (pb.CreateRequest(mutation=bench.mutation(), place=at("link", directory)), late):
        mutation = bench.mutation()
        wanted = pb.DelegateRequest(mutation=mutation, directory=directory, oldest=late.mutation.request + 1)
        assert (await delegate(bench.context, wanted)).delegation
        began_s = bench.clock.monotonic()
        assert not (await create(bench.context, request)).delegation
        assert bench.clock.monotonic() - began_s >= DELEGATION_RECALL_S
        await bench.pass_ticks(6)
    assert {"behind", "late"} <= set(await bench.names("/d"))


def beside(fs: MetaBench) -> tuple[Context, SteppedClock]:
    """A second service, with a clock of its own."""
    clock = SteppedClock()
    clock.advance(5000.0)
    return dataclasses.replace(fs.context, clock=clock), clock


async def test_each_service_waits_by_its_own_clock(bench: MetaBench) -> None:
    directory = await plant(bench)
    number = await delegated(bench, directory, OTHER)
    await delegation_recall._recall_or_clear(
        bench.context, DelegationHeld(directory, OTHER, number), None
    )  # this one hangs from now on
    bench.clock.advance(100.0)
    context, clock = beside(bench)
    began_s = clock.monotonic()
    await create(context, pb.CreateRequest(mutation=bench.mutation(), place=at("/d/new")))
    assert clock.monotonic() - began_s >= DELEGATION_RECALL_S


async def test_it_is_over_as_soon_as_the_holder_gives_up(bench: MetaBench) -> None:
    directory = await plant(bench)
    number = await delegated(bench, directory, OTHER)
    began_s = bench.clock.monotonic()
    adding = asyncio.create_task(bench.create("/d/new"))
    while not (await stored(bench, directory)).recalled:
        await asyncio.sleep(0)
    assert not adding.done() and "new" not in await bench.names("/d")
    await return_delegation(
        bench.context, pb.ReturnDelegationRequest(client=OTHER, directories=[directory], numbers=[number])
    )
    await adding
    assert bench.clock.monotonic() - began_s < DELEGATION_RECALL_S / 2


async def test_a_call_that_is_cut_off_while_it_waits_adds_nothing(bench: MetaBench) -> None:
    directory = await plant(bench)
    assert await delegated(bench, directory, OTHER)
    adding = asyncio.create_task(bench.create("/d/new"))
    while not (await stored(bench, directory)).recalled:
        await asyncio.sleep(0)
    await cancel_and_wait(adding)
    assert (await stored(bench, directory)).client == OTHER and await bench.names("/d") == ["old"]


@pytest.mark.parametrize(
    "store", ["good", pytest.param("troubled", marks=pytest.mark.trouble(conflict_rate=0.2, unknown_rate=0.2))]
)
async def test_clients_that_get_delegations_and_add_names_all_finish(bench: MetaBench, store: str) -> None:
    """Many clients at two services, with and without conflicts and unknown outcomes."""
    directory = await plant(bench)
    contexts = [bench.context, beside(bench)[0]]

    async def client(number: int) -> None:
        name = b"%016d" % number
        for step in range(5):
            await delegated(bench, directory, name)
            mutation = bench.mutation()
            mutation.client = name
            place = at(f"{number}-{step}", directory)
            context = contexts[number % 2]
            await create(context, pb.CreateRequest(mutation=mutation, place=place, exclusive=True))
            if step % 2:
                mutation = bench.mutation()
                mutation.client = name
                await remove(context, pb.RemoveRequest(mutation=mutation, place=place))

    await asyncio.gather(*(client(number) for number in range(6)))
    assert len(await bench.names("/d")) == 1 + 6 * 3
