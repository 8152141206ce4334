"""Which answers may come to the processes of one host. Time is virtual."""

import asyncio
import dataclasses
import gc
import os
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threefs_client.data.grants import Announced, Grants
from threefs_client.data.reads import Reader, ReadFile
from threefs_client.options import Options

from tests.harness.memory_storage import MemoryCluster, make_routing
from tests.harness.rpc import NETS, Served, run
from tests.harness.seeded_random import SeededRandom
from tests.harness.virtual_time import LOOP_CLOCK, run_virtual
from threefs.checksums import crc32c
from threefs.env.host_slots import OwnSlots
from threefs.ids import InodeId, NodeId, TableId
from threefs.layout import FileLayout
from threefs.rpc.methods import READ
from threefs.rpc.server_connection import Call
from threefs.sender_limit import STALL_S
from threefs.wire import storage_pb2 as pb

KIB = 1 << 10


def process(slots: OwnSlots, slot_bytes: int = 100 * KIB) -> Grants:
    return Grants(slots, slots.limit.most, slot_bytes, LOOP_CLOCK, SeededRandom("grants"))


def free(slots: OwnSlots) -> int:
    return slots.limit.value - len(slots._taken)


class Read:
    """A read whose answer takes a while to come once it may."""

    def __init__(self, grants: Grants, sender: str, size: int = 50 * KIB, takes_s: float = 0.01) -> None:
        self.grants = grants
        self.sender, self.size, self.takes_s = sender, size, takes_s
        self.allowed = asyncio.Event()
        self.came_at = 0.0

    async def run(self) -> None:
        answer = self.grants.begin(self.sender, self.size)
        try:
            if answer is not None:
                await asyncio.sleep(0.001)  # the disk is read
                answer.ready(self.allowed.set)
                await self.allowed.wait()
            self.allowed.set()
            await asyncio.sleep(self.takes_s)
            self.came_at = LOOP_CLOCK.monotonic()
        finally:
            if answer is None:
                self.grants.end(self.sender, self.size)
            else:
                answer.end()


def play(scene: Callable[[OwnSlots], Awaitable[None]], most: int = 4) -> None:
    async def main() -> None:
        slots = OwnSlots(most)
        await scene(slots)
        await asyncio.sleep(2.0)
        assert not slots._taken and not slots._waiting, "all is given back when nothing is read any more"

    run_virtual(main())


def test_a_read_alone_waits_for_nothing_and_its_slot_is_kept_for_the_next_ones() -> None:
    async def scene(slots: OwnSlots) -> None:
        grants = process(slots)
        taken = slots.take

        for _ in range(100):
            await Read(grants, "a").run()
            slots.take = None  # type: ignore[assignment, method-assign]  # the first one has got the slot
        slots.take = taken  # type: ignore[method-assign]
        assert grants.counters.at_once == 100 and not grants.counters.announced
        assert free(slots) == 3

    play(scene)


def test_what_exceeds_the_slots_waits_and_comes_in_turn() -> None:
    async def scene(slots: OwnSlots) -> None:
        grants = process(slots)
        reads = [Read(grants, f"s{number % 12}") for number in range(60)]
        running = [asyncio.ensure_future(read.run()) for read in reads]
        await asyncio.sleep(0.005)
        assert sum(read.allowed.is_set() for read in reads) == 8, "four senders, with two answers of half a slot"
        assert grants.budget.senders == 4
        await asyncio.gather(*running)
        counters = grants.counters
        assert counters.at_once + counters.granted == 60 and counters.granted == counters.announced
        assert not grants.budget.bytes and not grants.budget.waiting

    play(scene)


def test_processes_of_a_host_share_its_slots() -> None:
    """One that came first and has no end of work gives half to the other, and so on: both get on."""

    async def scene(slots: OwnSlots) -> None:
        first, second = process(slots), process(slots)
        done = {first: 0, second: 0}
        ends_at = LOOP_CLOCK.monotonic() + 5.0

        async def work(grants: Grants, sender: str) -> None:
            while LOOP_CLOCK.monotonic() < ends_at:
                await Read(grants, sender).run()
                done[grants] += 1
                assert len(slots._taken) <= 4

        await asyncio.gather(*(work(grants, f"s{n}") for grants in (first, second) for n in range(16)))
        share = done[first] / (done[first] + done[second])
        assert 0.35 < share < 0.65
        assert not first.counters.overdrafts and not second.counters.overdrafts

    play(scene)


def test_more_processes_than_slots_all_get_on() -> None:
    async def scene(slots: OwnSlots) -> None:
        processes = [process(slots) for _ in range(8)]
        done = [0] * 8

        async def work(number: int, sender: str) -> None:
            while LOOP_CLOCK.monotonic() < ends_at:
                await Read(processes[number], sender).run()
                done[number] += 1

        ends_at = LOOP_CLOCK.monotonic() + 10.0
        await asyncio.gather(*(work(number, f"s{n}") for number in range(8) for n in range(4)))
        assert min(done) > 0.4 * max(done)

    play(scene, most=2)


def test_a_process_that_hangs_with_all_slots_does_not_stop_the_others() -> None:
    async def scene(slots: OwnSlots) -> None:
        taken = [slots.take() for _ in range(4)]
        grants = process(slots)
        reads = [Read(grants, sender) for sender in "abc"]
        await asyncio.wait_for(asyncio.gather(*(read.run() for read in reads)), 3.0)
        assert grants.counters.overdrafts >= 1
        for slot in taken:
            assert slot is not None
            slots.give(slot)

    play(scene)


def test_reads_that_are_given_up_leave_nothing_behind() -> None:
    """Before they are announced, while they wait, and while they come."""

    async def scene(slots: OwnSlots) -> None:
        grants = process(slots)
        for pause_s in (0.0, 0.0005, 0.002, 0.008, 0.015):
            running = [asyncio.ensure_future(Read(grants, f"s{n}").run()) for n in range(20)]
            await asyncio.sleep(pause_s)
            for read in running[::2]:
                read.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            assert not grants.budget.bytes and not grants.budget.waiting and not grants.budget.senders

    play(scene)


def test_a_limit_that_is_cut_takes_slots_away() -> None:
    async def scene(slots: OwnSlots) -> None:
        grants = process(slots)
        running = [asyncio.ensure_future(Read(grants, f"s{n % 40}").run()) for n in range(2000)]
        await asyncio.sleep(0.05)
        assert len(slots._taken) == 32
        grants.received(100 * KIB, LOOP_CLOCK.monotonic() - 0.1)
        grants.received(KIB, LOOP_CLOCK.monotonic() - 100 * STALL_S)
        assert slots.limit.value == 16
        await asyncio.sleep(0.1)
        assert len(slots._taken) <= 18, "with what has been gained since"
        await asyncio.gather(*running)

    play(scene, most=32)


def test_a_process_that_ends_gives_its_slots_back() -> None:
    async def scene(slots: OwnSlots) -> None:
        grants = process(slots)
        running = [asyncio.ensure_future(Read(grants, f"s{n}").run()) for n in range(20)]
        await asyncio.sleep(0.005)
        grants.close()
        assert not slots._taken and not slots._waiting
        for read in running:
            read.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    play(scene)


def test_slots_of_a_loop_that_has_ended_are_free_again() -> None:
    slots = OwnSlots(2)

    async def left() -> None:
        grants = process(slots)
        assert grants.begin("a", 50 * KIB) is None and grants.begin("b", 50 * KIB) is None
        grants.announced(Announced(grants, "c", 50 * KIB))
        assert len(slots._taken) == 2 and slots.wanted_by_others("it")

    run_virtual(left())
    gc.collect()
    assert not slots._taken and not slots.wanted_by_others("it")


@pytest.mark.parametrize("net", ["tcp", "unix"])
def test_answers_that_pass_no_network_need_no_grant(net: str) -> None:
    content = os.urandom(100 * KIB)

    async def scene() -> None:
        async with Served(net=NETS[net]) as (server, peers, address):

            def read(call: Call[pb.ReadRequest, pb.ReadReply]) -> None:
                call.reply(pb.ReadReply(code=[0], length=[len(content)], checksum=[crc32c(content)]), [content])

            server.add(READ, read)
            await peers.connect(address, 5)
            routing = make_routing(chains=1, replicas=1)
            node = dataclasses.replace(routing.nodes[NodeId(1)], address=address)
            routing = dataclasses.replace(routing, nodes={node.node_id: node})
            slots = OwnSlots(4)
            grants = Grants(slots, 4, 1 << 20, LOOP_CLOCK, SeededRandom("grants"))
            reader = Reader(peers, MemoryCluster(routing), Options(), clock=LOOP_CLOCK, grants=grants)
            view = memoryview(bytearray(len(content)))
            file = ReadFile(InodeId(7), FileLayout(1 << 20, TableId(1), 1), len(content), 0)
            await reader.read_into([(file, 0, view)], LOOP_CLOCK.monotonic() + 20)
            assert bytes(view) == content
            assert grants.counters.at_once == (net == "tcp")
            assert not grants.budget.bytes
            grants.close()

    run(scene)


STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from("brgecw"), st.integers(0, 5), st.integers(1, 250)), max_size=80
)


@settings(deadline=None)
@given(STEPS)
def test_in_any_order_the_host_takes_no_more_than_its_slots_and_all_come_back(
    steps: list[tuple[int, str, int, int]],
) -> None:
    """Reads of three processes begin, are announced, end at any moment, and time passes."""

    async def scene(slots: OwnSlots) -> None:
        processes = [process(slots) for _ in range(3)]
        begun: list[list[tuple[str, int, Announced | None]]] = [[], [], []]
        for number, what, sender, size in steps:
            grants, own = processes[number], begun[number]
            if what == "b":
                own.append((f"s{sender}", size * KIB, grants.begin(f"s{sender}", size * KIB)))
            elif what == "w":
                await asyncio.sleep(size / 5000)
            elif own and what == "r":
                answer = own[size % len(own)][2]
                if answer is not None and not answer._taken and answer._grant is None:
                    answer.ready(lambda: None)
            elif own:
                name, total, answer = own.pop(size % len(own))
                if answer is None:
                    grants.end(name, total)
                else:
                    answer.end()
            held = [len(each._held) for each in processes]
            assert sum(held) == len(slots._taken) <= 3
            for each, count in zip(processes, held, strict=True):
                assert each.budget.slots == count + each._overdraft
                assert each.budget.senders <= each.budget.slots
        for grants, own in zip(processes, begun, strict=True):
            for name, total, answer in own:
                if answer is None:
                    grants.end(name, total)
                else:
                    answer.end()
            assert not grants.budget.bytes and not grants.budget.waiting

    play(scene, most=3)
