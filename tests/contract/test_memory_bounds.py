"""What peers can make a service hold is bounded: before and after HELLO, for requests and for answers."""

import asyncio
import dataclasses
import gc
import weakref
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.harness.chain_harness import chain_of
from tests.harness.rpc import NETS, RawPeer, Served, announcing, buffers_taken, hello_frame, identity
from threefs.env.net import RealNet
from threefs.errors import ConnectionLost, DeadlineExceeded, LimitExceeded, Overloaded, Retry, ThreefsError
from threefs.ids import ChunkId
from threefs.rpc import frames
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.frames import SEGMENT_BYTES
from threefs.rpc.limits import Limits
from threefs.rpc.methods import READ, SPACE_INFO, WRITE
from threefs.rpc.server import Server
from threefs.rpc.server_connection import Call
from threefs.wire import storage_pb2 as pb

MIB = 1 << 20
ReadCall = Call[pb.ReadRequest, pb.ReadReply]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def read_request(call_id: int) -> bytes:
    return frames.encode(frames.REQUEST, READ.number, 0, call_id, b"", 0, 60_000)


def add_reads(server: Server, size: int) -> list[int]:
    """Answers of that size from pooled buffers; how many were made."""
    made = [0]

    def read(call: ReadCall) -> None:
        call.make_room(size)
        made[0] += 1
        buffer = server.pool.take(size)
        call.reply(pb.ReadReply(), [buffer[:size]], lambda: server.pool.give(buffer))

    server.add(READ, read)
    return made


def into(place: memoryview, reply: object, size: int) -> list[memoryview]:
    return [place]


async def space(request: pb.SpaceInfoRequest) -> pb.SpaceInfoReply:
    return pb.SpaceInfoReply()


async def test_a_peer_that_reads_nothing_is_not_listened_to_any_more(tmp_path: Path) -> None:
    """64 reads of 8 MiB each, by one connection that takes no answer, made the service hold 513 MiB."""
    limits = Limits(queued_bytes=16 * MIB)
    async with Served(limits=limits) as (server, peers, address):
        made = add_reads(server, 8 * MIB)
        server.serve(SPACE_INFO, space)
        connection = await peers.connect(address, 5)
        connection._stream._stream.on_readable(None)
        places = [memoryview(bytearray(8 * MIB)) for _ in range(12)]
        calls = [connection.call(READ, pb.ReadRequest(), timeout_s=30, sink=partial(into, place)) for place in places]
        await until(lambda: made[0] >= 3)
        await asyncio.sleep(0.1)
        assert server.pool.lent_bytes <= 32 * MIB and server.queued.total_bytes <= 32 * MIB
        other = ConnectionPool(RealNet(), identity())
        await other.call(address, SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=5)
        await other.close()
        connection._stream._stream.on_readable(connection._stream._readable)
        await asyncio.gather(*calls)
        assert made[0] == 12, "once it reads again, everything is answered"
        await until(lambda: server.pool.lent == 0)
        assert server.queued.total_bytes == 0


@pytest.mark.parametrize("loop", ["asyncio"])
async def test_many_peers_that_read_nothing_have_one_bound_together_and_give_way_to_others(loop: str) -> None:
    # These peers are asyncio's own streams, which stop reading when they are told to.
    limits = Limits(queued_bytes=4 * MIB, process_bytes=16 * MIB)
    async with Served(limits=limits) as (server, peers, address):
        add_reads(server, 2 * MIB)
        raws = [RawPeer(address) for _ in range(20)]
        for raw in raws:
            await raw.__aenter__()
            await raw.greet()
            raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
            raw.writer.write(b"".join(read_request(call_id) for call_id in range(1, 9)))
        peak = 0
        for _ in range(40):
            await asyncio.sleep(0.01)
            peak = max(peak, server.pool.lent_bytes)
        assert 8 * MIB < peak <= 16 * MIB
        place = memoryview(bytearray(2 * MIB))

        async def served() -> bool:
            try:
                await peers.call(address, READ, pb.ReadRequest(), timeout_s=5, sink=lambda _, n: [place])
            except Overloaded:
                await asyncio.sleep(0.1)
                return False
            return True

        async with asyncio.timeout(25):  # they are let go of before they are given up
            while not await served():
                pass
        for raw in raws:
            raw.writer.transport.abort()


async def test_bodies_of_answers_have_a_bound_too() -> None:
    """As the lists of a large directory, which lie in no pool."""
    async with Served(limits=Limits(process_bytes=8 * MIB)) as (server, peers, address):
        assert server._check_timer is not None
        server._check_timer.cancel()  # a look in between would find a peer that reads nothing, and let go of it
        go_on = asyncio.Event()

        async def large(request: pb.SpaceInfoRequest) -> pb.SpaceInfoReply:
            await go_on.wait()
            return pb.SpaceInfoReply(targets=[pb.TargetSpace(target=1)] * (MIB // 4))

        server.serve(SPACE_INFO, large)
        connection = await peers.connect(address, 5)
        connection._stream._stream.on_readable(None)
        calls = [connection.call(SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=30) for _ in range(40)]
        await until(lambda: sum(len(session.calls) for session in server._connections) == 40)
        go_on.set()
        await until(lambda: not any(session.calls for session in server._connections))
        assert sum(session.stream.queued_bytes for session in server._connections) <= 9 * MIB
        connection._stream._stream.on_readable(connection._stream._readable)
        results = await asyncio.gather(*calls, return_exceptions=True)
        answered = [result for result in results if isinstance(result, pb.SpaceInfoReply)]
        assert answered and all(isinstance(result, pb.SpaceInfoReply | Overloaded) for result in results)


async def test_a_peer_that_is_not_known_yet_may_say_little() -> None:
    async with Served() as (server, _, address):
        for body_bytes in (5000, 8 * MIB):
            async with RawPeer(address) as raw:
                raw.writer.write(announcing(frames.encode(frames.HELLO), body_bytes) + bytes(1000))
                assert isinstance(await raw.goodbye(), LimitExceeded)
        async with RawPeer(address) as raw:
            raw.writer.write(hello_frame(identity(program="x" * 8000)))
            assert isinstance(await raw.goodbye(), LimitExceeded)
        await until(lambda: not server._connections)


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("size", [1000, SEGMENT_BYTES, 2 * SEGMENT_BYTES])
async def test_a_write_that_breaks_off_in_its_last_segment_leaves_nothing(size: int, lost: bool) -> None:
    """The header of that segment has come, and its place is known, but not all of its bytes have."""
    async with Served(limits=Limits(payload_s=0.3)) as (server, _, address):
        server.add(WRITE, lambda call: call.reply(pb.WriteReply()))
        taken = buffers_taken(server)
        async with RawPeer(address) as raw:
            await raw.greet()
            raw.writer.write(frames.encode(frames.REQUEST, WRITE.number, 0, 1, b"", size, 3_600_000))
            rest = size
            if size > SEGMENT_BYTES:
                rest -= SEGMENT_BYTES
                raw.writer.write(bytes(SEGMENT_BYTES) + frames.encode(frames.SEGMENT, call_id=1, payload_bytes=rest))
            raw.writer.write(bytes(rest - 9))
            await until(lambda: bool(taken))
            if not lost:
                header, body = await raw.frame()
                assert header.kind == frames.RESPONSE and isinstance(frames.error_from(body), DeadlineExceeded)
                assert server.pool.lent == 0
                raw.writer.write(bytes(9) + frames.encode(frames.REQUEST, WRITE.number, 0, 2, b"", 0, 1000))
                header, _ = await raw.frame()
                assert header.call_id == 2 and not header.flags, "the connection goes on"
        await until(lambda: not server._connections)
        assert server.pool.lent == server.calls_bytes == 0


async def test_a_write_that_is_sent_in_part_only_keeps_its_memory_for_its_time() -> None:
    async with Served(limits=Limits(payload_s=0.3)) as (server, _, address):
        server.add(WRITE, lambda call: call.reply(pb.WriteReply()))
        taken = buffers_taken(server)
        async with RawPeer(address) as raw:
            await raw.greet()
            head = frames.encode(frames.REQUEST, WRITE.number, 0, 1, b"", 2 * SEGMENT_BYTES, 3_600_000)
            raw.writer.write(head + bytes(SEGMENT_BYTES))
            await until(lambda: bool(taken))
            header, body = await raw.frame()
            assert header.kind == frames.RESPONSE and isinstance(frames.error_from(body), DeadlineExceeded)
            assert server.pool.lent == 0
            raw.writer.write(frames.encode(frames.SEGMENT, call_id=1, payload_bytes=100) + bytes(100))
            raw.writer.write(frames.encode(frames.REQUEST, WRITE.number, 0, 2, b"", 0, 1000))
            header, _ = await raw.frame()
            assert header.call_id == 2 and not header.flags, "the connection goes on"


@pytest.mark.parametrize("begun", [b"half of a header", announcing(frames.encode(frames.REQUEST, 301), 4000)])
async def test_a_frame_that_has_begun_is_awaited_for_a_while(begun: bytes) -> None:
    async with Served(limits=Limits(stall_s=0.2)) as (server, _, address), RawPeer(address) as raw:
        await raw.greet()
        raw.writer.write(begun)
        assert isinstance(await raw.goodbye(), ConnectionLost)
        await until(lambda: not server._connections)


async def test_writes_find_no_room_when_others_hold_it_all_but_what_services_pass_on_does() -> None:
    async with Served(limits=Limits(process_bytes=16 * MIB)) as (server, peers, address):
        held: list[Call[pb.WriteRequest, pb.WriteReply]] = []
        server.add(WRITE, lambda call: held.append(call))
        connection = await peers.connect(address, 5)
        data = bytes(4 * MIB)
        kept = [connection.call(WRITE, pb.WriteRequest(), timeout_s=20, payload=[data]) for _ in range(3)]
        with pytest.raises(Overloaded, match="no room"):
            await connection.call(WRITE, pb.WriteRequest(), timeout_s=20, payload=[data])
        kept.append(connection.call(WRITE, pb.WriteRequest(), timeout_s=20, payload=[data], hops=0))
        await until(lambda: len(held) == 4)
        for call in held:
            call.reply(pb.WriteReply())
        await asyncio.gather(*kept)


async def test_what_passes_more_services_leaves_room_for_what_has_come_to_its_last_one() -> None:
    """Else services that all hold what others are to take, of chains that cross, wait for each other."""
    async with Served(limits=Limits(process_bytes=16 * MIB)) as (server, peers, address):
        held: list[Call[pb.WriteRequest, pb.WriteReply]] = []
        server.add(WRITE, lambda call: held.append(call))
        connection = await peers.connect(address, 5)
        data = bytes(MIB)
        kept: list[asyncio.Future[pb.WriteReply]] = []
        for hops, count in ((None, 12), (3, 1), (2, 1), (1, 1), (0, 1)):
            kept += [
                connection.call(WRITE, pb.WriteRequest(), timeout_s=20, payload=[data], hops=hops) for _ in range(count)
            ]
            await until(lambda: len(held) == len(kept))  # noqa: B023
            with pytest.raises(Overloaded, match="no room"):
                await connection.call(WRITE, pb.WriteRequest(), timeout_s=20, payload=[data], hops=hops)
        for call in held:
            call.reply(pb.WriteReply())
        await asyncio.gather(*kept)


@pytest.mark.parametrize("loop", ["asyncio"])
async def test_the_connection_that_asks_for_room_may_be_the_one_that_is_closed(loop: str) -> None:
    """Its call is not begun: nobody would end it."""
    async with Served(limits=Limits(process_bytes=64 * MIB)) as (server, _, address):
        add_reads(server, 40 * MIB)
        server.add(WRITE, lambda call: call.reply(pb.WriteReply()))
        async with RawPeer(address) as raw:
            await raw.greet()
            raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
            raw.writer.write(read_request(1))
            await until(lambda: server.pool.lent == 1)
            (session,) = server._connections
            session.progress.sending_s = 1000.0  # it takes very little
            raw.writer.write(frames.encode(frames.REQUEST, WRITE.number, 0, 2, b"", 16 * MIB, 60_000))
            await until(lambda: not server._connections)
            assert server.pool.lent == 0 and not session.calls


async def test_connections_are_bounded_and_one_too_many_gets_an_error() -> None:
    async with Served(limits=Limits(connections=3)) as (server, _, address):
        server.serve(SPACE_INFO, space)
        clients = [ConnectionPool(RealNet(), identity()) for _ in range(4)]
        for client in clients[:3]:
            await client.call(address, SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=5)
        with pytest.raises(Overloaded, match="3 connections"):
            await clients[3].call(address, SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=5)
        for session in list(server._connections):
            session.progress.idle_since -= 100.0  # it has been idle for a while
        await clients[3].call(address, SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=5)
        for client in clients:
            await client.close()


@pytest.mark.parametrize("token", ["", "a key of the cluster"])
async def test_clients_do_not_keep_services_out(token: str) -> None:
    """They would not be heard, and their targets would leave."""
    async with Served(limits=Limits(connections=4), mine=identity("c" * 32, token=token)) as (server, _, address):
        server.serve(SPACE_INFO, space)
        programs = ["python"] * 5 + ["threefs-storage"] * 2
        pools = [ConnectionPool(RealNet(), dataclasses.replace(identity(token=token), program=p)) for p in programs]
        refused = []
        for pool, program in zip(pools, programs, strict=True):
            try:
                await pool.call(address, SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=5)
            except Overloaded:
                refused.append(program)
        assert refused == ["python", "threefs-storage"], "one place beside the four is kept for a service"
        for pool in pools:
            await pool.close()


async def test_connections_that_say_nothing_do_not_keep_others_out() -> None:
    """Without the key, 4,096 silent ones kept all clients out, as long as somebody made new ones."""
    async with Served(limits=Limits(connections=40)) as (server, _, address):
        server.serve(SPACE_INFO, space)
        friend = ConnectionPool(RealNet(), identity())
        await friend.call(address, SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=5)
        known = friend.live(address)
        async with AsyncExitStack() as stack:
            for turn in range(3):
                for _ in range(30):
                    await stack.enter_async_context(RawPeer(address))
                assert len(server._unidentified) <= 10 and len(server._connections) <= 20
                client = ConnectionPool(RealNet(), identity())
                await client.call(address, SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=5)
                await client.close()
                assert turn < 3 and friend.live(address) is known
        await until(lambda: len(server._connections) == 1 and not server._unidentified)
        await friend.close()


def look_until(server: Server, end_s: float) -> None:
    """The reaper looks at its connections every ten seconds until then."""
    now = server.clock.monotonic()
    while now < end_s:
        server._reaper.check(now)
        now += 10.0
    server._reaper.check(end_s)


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("first", ["the end", "the call"])
async def test_an_idle_connection_ends_and_the_next_call_makes_another(net: str, first: str) -> None:
    """Also a call that was on its way when the service let go of it: the service has not begun that."""
    async with Served(net=NETS[net], limits=Limits(idle_s=3600)) as (server, peers, address):
        begun: list[pb.SpaceInfoRequest] = []

        async def counted(request: pb.SpaceInfoRequest) -> pb.SpaceInfoReply:
            begun.append(request)
            return pb.SpaceInfoReply()

        server.serve(SPACE_INFO, counted)
        await peers.call(address, SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=30)
        (session,), old = server._connections, peers.live(address)
        assert old is not None and not session.busy
        look_until(server, server.clock.monotonic() + 10 * server.limits.stall_s)
        assert not (session.stream.closed or session.stream.sending), (
            "nothing is owed: it may be idle for its whole time"
        )
        for link in (session.stream, old._stream):  # neither side hears the other meanwhile
            link._stream.on_readable(None)
        if first == "the call":
            call = asyncio.create_task(peers.call(address, SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=30))
            await until(lambda: old.outstanding == 1)
        look_until(server, session.progress.idle_since + 3601)  # sums of readings are not exact
        await until(lambda: not server._connections)
        if first == "the end":
            assert not old.closing
            call = asyncio.create_task(peers.call(address, SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=30))
            await asyncio.sleep(0)
        if not old.closing:
            old._stream._stream.on_readable(old._stream._readable)
        await call
        assert peers.live(address) is not old and len(begun) == 2


@pytest.mark.parametrize("net", NETS)
async def test_a_call_that_may_have_been_started_is_not_sent_again(net: str) -> None:
    async with Served(net=NETS[net]) as (server, peers, address):
        begun: list[pb.SpaceInfoRequest] = []

        async def never(request: pb.SpaceInfoRequest) -> pb.SpaceInfoReply:
            begun.append(request)
            return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

        server.serve(SPACE_INFO, never)
        call = asyncio.create_task(peers.call(address, SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=30))
        await until(lambda: bool(begun))
        (session,) = server._connections
        session.evict(ConnectionLost("let go of"))
        with pytest.raises(ConnectionLost) as caught:
            await call
        assert caught.value.retry is Retry.UNKNOWN and len(begun) == 1


async def test_a_connection_that_is_closed_keeps_no_memory_however_long_it_is_known() -> None:
    async with Served() as (server, _, address):
        server.add(WRITE, lambda call: call.reply(pb.WriteReply()))
        gc.disable()  # what only the collector would find
        try:
            async with RawPeer(address) as raw:
                await raw.greet()
                raw.writer.write(announcing(frames.encode(frames.REQUEST, WRITE.number), 7 * MIB) + bytes(MIB))
                await until(lambda: any(session.stream._body is not None for session in server._connections))
                (session,) = server._connections
                ring = weakref.ref(session.stream._ring)
            await until(lambda: not server._connections)
            await asyncio.sleep(0)
            assert session.stream._body is None and ring() is None
        finally:
            gc.enable()


async def test_a_storage_service_under_a_flood_stays_small_and_serves_others(tmp_path: Path) -> None:
    """23 KB of requests took a storage service to 1.6 GiB."""
    async with chain_of(tmp_path, 1) as chain:
        chunk, content = ChunkId(7, 1), bytes(range(256)) * 4096
        await chain.write(content, chunk=chunk)
        connection = await chain.peers.connect(chain[1].address, 3)
        stream = connection._stream._stream
        stream.on_readable(None)
        one = [chain[1].target_id] * 32
        rows = len(one)
        request = pb.ReadRequest(
            target=one,
            chain_version=[1] * rows,
            inode=[7] * rows,
            index=[1] * rows,
            offset=[0] * rows,
            length=[MIB] * rows,
        )
        calls = [
            connection.call(READ, request, timeout_s=60, sink=lambda _, n: [memoryview(bytearray(n))])
            for _ in range(40)
        ]
        pool = chain[1].server.pool
        await until(lambda: pool.lent_bytes > 64 * MIB)
        await asyncio.sleep(0.3)
        assert pool.lent_bytes <= 128 * MIB
        other = ConnectionPool(RealNet(), identity("c" * 32))
        got = bytearray(MIB)
        small = pb.ReadRequest(target=one[:1], chain_version=[1], inode=[7], index=[1], offset=[0], length=[MIB])
        await other.call(chain[1].address, READ, small, timeout_s=30, sink=lambda _, n: [memoryview(got)])
        assert got == content
        await other.close()
        connection.close()
        for result in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(result, ThreefsError)


async def test_bodies_that_are_being_received_have_a_bound_of_all_connections() -> None:
    """40 connections with parts of bodies made a service hold 280 MiB; 4,096 connections are let in."""
    async with Served(limits=Limits(bodies_bytes=MIB)) as (server, peers, address):
        server.add(WRITE, lambda call: call.reply(pb.WriteReply()))
        server.serve(SPACE_INFO, space)
        body = pb.WriteRequest(writes=[pb.ChunkWrite(identity={"client": bytes(28)})] * 11_000).SerializeToString()
        frame = frames.encode(frames.REQUEST, WRITE.number, 0, 1, body, 0, 60_000)
        half = len(frame) // 2
        async with AsyncExitStack() as stack:
            raws = [await stack.enter_async_context(RawPeer(address)) for _ in range(6)]
            for raw in raws:
                await raw.greet()
                raw.writer.write(frame[:half])
            await until(lambda: sum(session.stream._pause_is_timed for session in server._connections) == 4)
            assert server.bodies.bytes <= MIB
            assert sum(len(session.stream._body or b"") for session in server._connections) == server.bodies.bytes
            await peers.call(address, SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=30)
            for raw in raws:  # the first two make room for the others
                raw.writer.write(frame[half:])
            for raw in raws:
                header, _ = await raw.frame()
                assert header.kind == frames.RESPONSE and not header.flags
            assert server.bodies.bytes == 0
            for raw in raws[:3]:
                raw.writer.write(frame[:half])
            await until(lambda: server.bodies.bytes > 0)
        await until(lambda: server.bodies.bytes == 0)


async def test_requests_in_flight_have_a_bound_of_one_connection_and_of_all() -> None:
    """Calls that wait keep their requests: 20 MiB of bodies of one connection made a service hold 1.4 GiB."""
    async with Served(limits=Limits(calls_bytes=32 * MIB)) as (server, peers, address):
        held: list[Call[pb.WriteRequest, pb.WriteReply]] = []
        server.add(WRITE, lambda call: held.append(call))
        server.serve(SPACE_INFO, space)
        clients = [await ConnectionPool(RealNet(), identity()).connect(address, 5) for _ in range(4)]
        one = pb.ChunkWrite(identity={"client": bytes(16), "seq": 1})
        request = pb.WriteRequest(writes=[one] * (MIB // 4 // one.ByteSize()))
        calls = [client.call(WRITE, request, timeout_s=30) for client in clients for _ in range(32)]
        await until(lambda: sum(call.done() for call in calls) + len(held) == len(calls))
        assert server.calls_bytes <= 24 * MIB < 32 * MIB
        refused = [call.exception() for call in calls if call.done()]
        assert refused and all(isinstance(error, Overloaded) for error in refused)
        await peers.call(address, SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=30)
        forwarded = clients[0].call(WRITE, request, timeout_s=30, hops=0)
        count = len(held)
        await until(lambda: len(held) > count)
        for call in held:
            call.reply(pb.WriteReply())
        await forwarded
        await until(lambda: not server.calls_bytes)
        for client in clients:
            client.close()
