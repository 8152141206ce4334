"""What every network does, the real one and the simulated one alike: the simulator is worth what it has in common."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.harness.rpc import TcpNet
from tests.harness.rpc import run as run_really
from tests.harness.seeded_random import SeededRandom
from tests.harness.simulated.loop import Process, SimLoop
from tests.harness.streams import failure, pair, receive, send
from tests.sim.net import Fabric, SimNet
from threefs.env.net import MAX_PIECES, Net, RealNet, Stream
from threefs.errors import Unavailable

Test = Callable[[Net, Net, str], Coroutine[Any, Any, None]]


def _unix(test: Test) -> None:
    run_really(lambda: test(RealNet(), RealNet(), "127.0.0.1"))


def _tcp(test: Test) -> None:
    run_really(lambda: test(TcpNet(), TcpNet(), "127.0.0.1"), "asyncio")


def _simulated(test: Test) -> None:
    loop = SimLoop()
    fabric = Fabric(loop, SeededRandom("contract"))
    one, other = Process(loop, "one", "a"), Process(loop, "other", "b")

    async def main() -> None:
        await one.start(test(SimNet(fabric, one), SimNet(fabric, other), "b"))

    try:
        loop.run(main(), limit_s=60, most_steps=1_000_000)
        assert not loop.failures
    finally:
        loop.discard()


def on_every_net(test: Test) -> Callable[..., None]:
    """Runs a test with the nets of two processes, and the host that the second one may listen on."""

    @pytest.mark.parametrize("run", [_unix, _tcp, _simulated], ids=["unix", "tcp", "simulated"])
    def on_one(run: Callable[[Test], None]) -> None:
        run(test)

    return on_one


def views(*lengths: int) -> list[memoryview]:
    return [memoryview(bytearray(length)) for length in lengths]


async def readable(stream: Stream) -> None:
    seen = asyncio.Event()
    stream.on_readable(seen.set)
    await seen.wait()
    stream.on_readable(None)


@on_every_net
async def test_a_free_port_is_picked_and_reported(here: Net, there: Net, host: str) -> None:
    listeners = [await there.listen(host, 0, lambda stream: None) for _ in range(3)]
    ports = {listener.address.removeprefix(f"{host}:") for listener in listeners}
    assert len(ports) == 3 and all(0 < int(port) < 65536 for port in ports)
    for listener in listeners:
        listener.close()


@on_every_net
async def test_a_taken_port_is_unavailable_until_its_listener_is_closed(here: Net, there: Net, host: str) -> None:
    first = await there.listen(host, 0, lambda stream: None)
    port = int(first.address.rpartition(":")[2])
    with pytest.raises(Unavailable, match=f"cannot listen on {host}:{port}"):
        await there.listen(host, port, lambda stream: None)
    first.close()
    first.close()
    again = await there.listen(host, port, lambda stream: None)
    assert again.address == first.address
    again.close()


@on_every_net
async def test_a_connection_to_a_port_without_a_listener_is_refused(here: Net, there: Net, host: str) -> None:
    listener = await there.listen(host, 0, lambda stream: None)
    listener.close()
    with pytest.raises(Unavailable, match=f"cannot connect to {listener.address}"):
        await here.connect(listener.address, 5)


@on_every_net
async def test_bytes_travel_both_ways_in_order(here: Net, there: Net, host: str) -> None:
    one, other, listener = await pair(here, there, host)
    assert one.peer == listener.address and other.peer
    assert one.send([b"he", bytearray(b"ll"), memoryview(b"o, ")]) == 7
    assert one.send([b"you"]) == 3
    assert other.send([b"and you"]) == 7
    assert await receive(other, 10) == b"hello, you"
    assert await receive(one, 7) == b"and you"
    for end in (one, other, listener):
        end.close()


@on_every_net
async def test_a_missing_peer_is_an_error(here: Net, there: Net, host: str) -> None:
    one, other, listener = await pair(here, there, host)
    for end in (one, other):
        with pytest.raises(BlockingIOError):
            end.recv_into(views(10))
    for closed in (one, other, listener):
        closed.close()


@on_every_net
async def test_what_is_received_is_scattered_over_the_views(here: Net, there: Net, host: str) -> None:
    one, other, listener = await pair(here, there, host)
    one.send([b"abcdefgh"])
    await readable(other)
    parts = views(1, 2, 0, 4)
    assert other.recv_into(parts) == 7, "the rest stays"
    assert [bytes(part) for part in parts] == [b"a", b"bc", b"", b"defg"]
    parts = views(3, 3)
    assert other.recv_into(parts) == 1, "fewer than asked for"
    assert [bytes(part) for part in parts] == [b"h\0\0", b"\0\0\0"]
    for end in (one, other, listener):
        end.close()


@on_every_net
async def test_readiness_is_a_level_not_an_edge(here: Net, there: Net, host: str) -> None:
    one, other, listener = await pair(here, there, host)
    one.send([b"abc"])
    await readable(other)
    await readable(other)
    calls = asyncio.Semaphore(0)
    other.on_readable(calls.release)
    for _ in range(5):
        await calls.acquire()
    other.recv_into(views(2))
    for _ in range(5 + calls._value):
        await calls.acquire()
    other.on_readable(None)
    other.recv_into(views(2))
    with pytest.raises(BlockingIOError):
        other.recv_into(views(1))
    for end in (one, other, listener):
        end.close()


@on_every_net
async def test_an_idle_stream_is_writable_and_not_readable(here: Net, there: Net, host: str) -> None:
    one, other, listener = await pair(here, there, host)
    told, untold = asyncio.Event(), asyncio.Event()
    one.on_readable(untold.set)
    one.on_writable(told.set)
    await told.wait()
    one.on_writable(None)  # else it would be called again and again
    await asyncio.sleep(0.02)
    assert not untold.is_set()
    for end in (one, other, listener):
        end.close()


@on_every_net
async def test_a_callback_that_was_taken_back_is_not_called(here: Net, there: Net, host: str) -> None:
    one, other, listener = await pair(here, there, host)
    first, second = asyncio.Event(), asyncio.Event()
    other.on_readable(first.set)
    other.on_readable(second.set)  # in its place
    one.send([b"x"])
    await second.wait()
    assert not first.is_set()
    other.on_readable(None)
    await asyncio.sleep(0.01)
    second.clear()
    await asyncio.sleep(0.02)
    assert not second.is_set()
    for end in (one, other, listener):
        end.close()


@on_every_net
async def test_a_reader_that_does_not_read_holds_the_sender_back(here: Net, there: Net, host: str) -> None:
    one, other, listener = await pair(here, there, host)
    piece = bytes(range(256)) * 4096
    sent = 0
    with pytest.raises(BlockingIOError):
        while sent < 1 << 30:
            sent += one.send([piece])
    writable = asyncio.Event()
    one.on_writable(writable.set)
    await asyncio.sleep(0.02)
    received = await receive(other, sent)
    assert len(received) == sent
    await writable.wait()
    one.on_writable(None)
    for end in (one, other, listener):
        end.close()


@on_every_net
async def test_more_than_any_buffer_arrives_whole(here: Net, there: Net, host: str) -> None:
    one, other, listener = await pair(here, there, host)
    data = b"".join(number.to_bytes(4, "little") for number in range(3 << 20))
    _, back, forth = await asyncio.gather(send(one, data), receive(other, len(data)), _echo(other, one))
    assert back == data and forth == b"meanwhile"
    for end in (one, other, listener):
        end.close()


async def _echo(sender: Stream, receiver: Stream) -> bytes:
    await send(sender, b"meanwhile")
    return await receive(receiver, 9)


@on_every_net
async def test_bytes_that_were_taken_belong_to_the_network(here: Net, there: Net, host: str) -> None:
    one, other, listener = await pair(here, there, host)
    buffer = bytearray(b"before")
    assert one.send([buffer]) == 6
    buffer[:] = b"after!"
    assert await receive(other, 6) == b"before"
    for end in (one, other, listener):
        end.close()


@on_every_net
async def test_a_send_of_nothing_is_not_the_end(here: Net, there: Net, host: str) -> None:
    one, other, listener = await pair(here, there, host)
    assert one.send([b""]) == 0
    assert one.send([b"x"]) == 1
    assert await receive(other, 1) == b"x"
    for end in (one, other, listener):
        end.close()


@on_every_net
async def test_no_more_pieces_than_the_kernel_takes(here: Net, there: Net, host: str) -> None:
    one, other, listener = await pair(here, there, host)
    assert one.send([b"x"] * MAX_PIECES) == MAX_PIECES
    with pytest.raises(OSError, match=r"(?i)too long"):
        one.send([b"x"] * (MAX_PIECES + 1))
    for end in (one, other, listener):
        end.close()


@on_every_net
async def test_the_end_comes_after_the_last_byte_and_stays(here: Net, there: Net, host: str) -> None:
    one, other, listener = await pair(here, there, host)
    one.send([b"goodbye"])
    one.close()
    assert await receive(other, 100) == b"goodbye"
    for _ in range(2):
        await readable(other)
        assert other.recv_into(views(10)) == 0
    other.close()
    listener.close()


@on_every_net
async def test_the_accepting_side_may_close_first(here: Net, there: Net, host: str) -> None:
    one, other, listener = await pair(here, there, host)
    other.send([b"goodbye"])
    other.close()
    assert await receive(one, 100) == b"goodbye"
    one.close()
    listener.close()


@on_every_net
async def test_a_send_to_a_closed_end_is_an_error(here: Net, there: Net, host: str) -> None:
    one, other, listener = await pair(here, there, host)
    other.close()
    assert not isinstance(await failure(one), BlockingIOError)
    one.close()
    listener.close()


@on_every_net
async def test_both_sides_may_close_at_once_and_twice(here: Net, there: Net, host: str) -> None:
    one, other, listener = await pair(here, there, host)
    for end in (one, other, one, other, listener):
        end.close()
    for end in (one, other):
        with pytest.raises(OSError, match=r"(?i)bad file"):
            end.recv_into(views(1))
        with pytest.raises(OSError, match=r"(?i)bad file"):
            end.send([b"x"])


@on_every_net
async def test_connections_outlive_their_listener(here: Net, there: Net, host: str) -> None:
    one, other, listener = await pair(here, there, host)
    listener.close()
    one.send([b"x"])
    assert await receive(other, 1) == b"x"
    one.close()
    other.close()


@on_every_net
async def test_many_connections_are_not_confused(here: Net, there: Net, host: str) -> None:
    accepted: asyncio.Queue[Stream] = asyncio.Queue()
    listener = await there.listen(host, 0, accepted.put_nowait)
    mine = await asyncio.gather(*(here.connect(listener.address, 5) for _ in range(10)))
    theirs = [await accepted.get() for _ in range(10)]
    for number, stream in enumerate(mine):
        stream.send([bytes([number])])
    for stream in theirs:
        data = await receive(stream, 1)
        stream.send([data, data])
    assert [await receive(stream, 2) for stream in mine] == [bytes([number] * 2) for number in range(10)]
    for stream in (*mine, *theirs):
        stream.close()
    listener.close()


@on_every_net
async def test_a_connection_attempt_can_be_given_up(here: Net, there: Net, host: str) -> None:
    listener = await there.listen(host, 0, lambda stream: stream.close())
    attempt = asyncio.ensure_future(here.connect(listener.address, 5))
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    stream = await here.connect(listener.address, 5)
    stream.close()
    listener.close()
