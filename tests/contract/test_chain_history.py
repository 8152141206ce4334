"""Clients write and read one chunk at all replicas while targets restart and leave the chain, in drawn schedules.

What they see has to fit one order: every version is one write's content, versions rise in the order of acknowledgement,
and no operation sees less than what had been seen before it began (I1, I2, I6).
"""

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from threefs_storage.chain.resync import row_of

from tests.harness.chain_harness import CHUNK, OFFLINE, SERVING, TestChain, chain_of
from tests.harness.history import Kind, Operation
from tests.harness.linearizability import check, check_versions
from tests.harness.rpc import on_a_loop
from threefs.errors import ChunkNotFound, StaleWrite, ThreefsError

LENGTH = 64


@dataclass(frozen=True)
class Seen:
    """An operation that has ended well."""

    begin: int
    end: int
    version: int
    content: bytes
    writes: bool

    def told(self) -> Operation:
        """For the checker, which judges by contents and does not need versions. Version 0 stands for no chunk."""
        if self.writes:
            return Operation("", Kind.WRITE, "chunk", self.begin, self.end, payload=self.content, version=self.version)
        result = self.content if self.version else None
        version = self.version or None
        return Operation("", Kind.READ, "chunk", self.begin, self.end, length=LENGTH, result=result, version=version)


class Story:
    def __init__(self) -> None:
        self.now = 0
        self.seen: list[Seen] = []
        #: A client changes a chunk by one write at a time: a later one makes an earlier one stale.
        self.clients = {client: asyncio.Lock() for client in (1, 2, 3)}

    def tick(self) -> int:
        self.now += 1
        return self.now

    def check(self) -> None:
        contents: dict[int, bytes] = {}
        for one in self.seen:
            assert contents.setdefault(one.version, one.content) == one.content, "one version, one content"
        acknowledged = [one.content for one in self.seen if one.writes]
        versions = {content: version for version, content in contents.items()}
        assert len(set(acknowledged)) == len(acknowledged) and len(versions) == len(contents), "applied once (I6)"
        for earlier in self.seen:
            for later in self.seen:
                if earlier.end < later.begin:
                    assert later.version >= earlier.version + later.writes, f"{later} after {earlier}"
        operations = [one.told() for one in self.seen]
        verdict = check(operations)
        assert verdict.linearizable, verdict.explanation
        assert not check_versions(operations)


async def write(chain: TestChain, story: Story, client: int) -> None:
    """One identity, sent until it is acknowledged."""
    async with story.clients[client]:
        chain.seq += 1
        seq, begin = chain.seq, story.tick()
        content = b"%02d" % seq * (LENGTH // 2)
        while True:
            try:
                result = await chain.write(content, seq=seq, client=bytes([client]) * 16, timeout_s=1.0)
            except ThreefsError as error:
                assert not isinstance(error, StaleWrite)
                await asyncio.sleep(0.003)
                continue
            story.seen.append(Seen(begin, story.tick(), result.version, content, True))
            return


async def read(chain: TestChain, story: Story, node: int, *, timeout_s: float = 1.0) -> None:
    """Once: what fails has seen nothing."""
    begin = story.tick()
    try:
        version, content = await chain.read(node, length=LENGTH, timeout_s=timeout_s)
    except ChunkNotFound:
        version, content = 0, b""
    except ThreefsError:
        return
    story.seen.append(Seen(begin, story.tick(), version, content, False))


async def leave(chain: TestChain, node: int, late: bool) -> None:
    """The target learns it first, as the end of its lease makes sure; another one may learn it late."""
    serving = [n for n, state in chain.members if state is SERVING]
    if len(serving) < 2 or node not in serving:
        return
    gone = [n for n, state in chain.members if state is OFFLINE]
    rest = [n for n in serving if n != node]
    first = rest[1:] if late else rest
    members = [(n, SERVING) for n in rest] + [(n, OFFLINE) for n in [*gone, node]]
    routing = chain.change(*members, learned_by=[*first, *gone, node])
    if late:
        await asyncio.sleep(0.01)
        replica = chain[rest[0]]
        if replica.running and replica.cluster.routing.version < routing.version:
            replica.cluster.learn(routing)


NODES = st.integers(1, 3)
STEPS = st.one_of(
    st.tuples(st.just("write"), st.integers(1, 3)),
    st.tuples(st.just("read"), NODES),
    st.tuples(st.just("read"), NODES),
    st.tuples(st.just("restart"), NODES),
    st.tuples(st.just("leave"), NODES),
    st.tuples(st.just("leave late"), NODES),
    st.tuples(st.just("pause"), st.integers(1, 8)),
)


async def play(chain: TestChain, steps: list[tuple[str, int]]) -> None:
    story = Story()
    tasks: list[asyncio.Task[None]] = []
    for what, number in steps:
        if what == "write":
            tasks.append(asyncio.create_task(write(chain, story, number)))
        elif what == "read":
            tasks.append(asyncio.create_task(read(chain, story, number)))
        elif what == "restart":
            await chain[number].restart(chain.routing())
            if chain[number].cluster.routing.version < chain.version:  # it changed meanwhile
                chain[number].cluster.learn(chain.routing())
        elif what == "pause":
            await asyncio.sleep(number / 1000)
        else:
            tasks.append(asyncio.create_task(leave(chain, number, what == "leave late")))
            await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    serving = [node for node, state in chain.members if state is SERVING]
    for node in serving:
        await read(chain, story, node, timeout_s=20.0)  # the last one has to see the newest version
    story.check()
    newest = max((one.version for one in story.seen), default=0)
    assert story.seen[-1].version == newest
    assert not any(chain[node].pending() for node in serving)
    # The chain version of a commit may differ: it is that in which each of them has made it.
    assert len({row_of(CHUNK, chain[node].record()) for node in serving}) == 1, "I4: equal once all is quiet"


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, min_size=4, max_size=30))
@on_a_loop
async def test_the_answers_to_clients_fit_one_order(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with chain_of(Path(directory)) as chain:
            await play(chain, steps)
