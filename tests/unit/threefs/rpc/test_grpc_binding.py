"""The gRPC binding, as our own client and as anybody's."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from structlog.testing import capture_logs

from tests.harness.clocks import SteppedClock
from tests.harness.rpc import RawPeer
from threefs.env import ports
from threefs.env.clock import CLOCK, Clock
from threefs.env.net import parse_address
from threefs.errors import DeadlineExceeded, Fenced, Internal, NotAuthorised, ThreefsError, Unavailable
from threefs.rpc.grpc_binding import ControlClient, ControlServer
from threefs.rpc.grpc_proofs import Gate, Proof
from threefs.rpc.limits import Limits
from threefs.rpc.methods import GET_STATUS
from threefs.wire import manager_pb2 as pb

KEY = "0123456789abcdef" * 4


@contextlib.asynccontextmanager
async def serving(
    handler: Callable[[pb.GetStatusRequest], Awaitable[pb.GetStatusReply]],
    token: str = "",
    limits: Limits | None = None,
    clock: Clock = CLOCK,
) -> AsyncIterator[str]:
    """The address of a server with this handler."""
    server = ControlServer(token, limits or Limits(), clock=clock)
    server.serve(GET_STATUS, handler)
    address = await server.start("127.0.0.1", 0)
    try:
        yield address
    finally:
        await server.stop(0.5)


async def test_a_server_that_was_suspended_takes_no_call_of_before() -> None:
    asked: list[int] = []

    async def counted(request: pb.GetStatusRequest) -> pb.GetStatusReply:
        asked.append(1)
        return pb.GetStatusReply()

    late = SteppedClock(step_s=31.0, sleepers_wait=True)  # nothing has run between two looks
    async with serving(counted, clock=late) as address:
        with pytest.raises(Unavailable, match="this service was suspended"):
            await ask(address)
    assert not asked


@pytest.mark.parametrize("token", ["", KEY])
async def test_a_server_that_was_suspended_closes_its_connections_and_serves_others(token: str) -> None:
    held = asyncio.Event()

    async def waiting(request: pb.GetStatusRequest) -> pb.GetStatusReply:
        held.set()
        if not request.clients:
            await asyncio.sleep(30)
        return pb.GetStatusReply(cluster_id="c")

    clock = SteppedClock(sleepers_wait=True)
    async with serving(waiting, token, clock=clock) as address:
        client = ControlClient(address, token)
        before = asyncio.create_task(client.call(GET_STATUS, pb.GetStatusRequest(), timeout_s=10))
        await held.wait()
        await clock.pass_by(29)
        assert not before.done()
        clock.advance(31)
        with pytest.raises(Unavailable):
            await before
        reply = None
        while reply is None:
            with contextlib.suppress(Unavailable):
                reply = await client.call(GET_STATUS, pb.GetStatusRequest(clients=True), timeout_s=5)
            await asyncio.sleep(0.01)
        assert reply.cluster_id == "c"
        await client.close()


async def ask(address: str, token: str = "", timeout_s: float = 5) -> pb.GetStatusReply:
    client = ControlClient(address, token)
    try:
        return await client.call(GET_STATUS, pb.GetStatusRequest(), timeout_s=timeout_s)
    finally:
        await client.close()


async def status(request: pb.GetStatusRequest) -> pb.GetStatusReply:
    return pb.GetStatusReply(cluster_id="c", manager_epoch=3)


async def test_a_call() -> None:
    async with serving(status) as address:
        assert (await ask(address)).manager_epoch == 3


@pytest.mark.parametrize("error", [Fenced("epoch 4 is held by another"), Unavailable("later")])
async def test_an_error_keeps_its_class_and_words(error: ThreefsError) -> None:
    async def fail(request: pb.GetStatusRequest) -> pb.GetStatusReply:
        raise error

    async with serving(fail) as address:
        with pytest.raises(type(error), match=str(error)):
            await ask(address)


async def test_a_handler_that_breaks_is_internal_and_logged() -> None:
    async def fail(request: pb.GetStatusRequest) -> pb.GetStatusReply:
        raise KeyError("secret detail")

    async with serving(fail) as address:
        with capture_logs() as logs, pytest.raises(Internal) as caught:
            await ask(address)
        assert "secret detail" not in str(caught.value)
        assert any(entry["log_level"] == "error" for entry in logs)


async def test_a_handler_is_answered_for_when_what_it_waits_for_is_cancelled() -> None:
    """Nobody had cancelled the call: over frames it is an internal error."""

    async def waits(request: pb.GetStatusRequest) -> pb.GetStatusReply:
        shared = asyncio.get_running_loop().create_future()
        shared.cancel()
        return await shared  # type: ignore[no-any-return]

    async with serving(waits) as address:
        with capture_logs() as logs, pytest.raises(Internal, match="CancelledError"):
            await ask(address)
        assert any(entry["log_level"] == "error" for entry in logs)


async def test_a_token_is_needed_where_there_is_one() -> None:
    async with serving(status, token="right") as address:
        assert (await ask(address, "right")).cluster_id == "c"
        for token in ("", "wrong"):
            with pytest.raises(NotAuthorised):
                await ask(address, token)


async def test_a_port_without_a_listener_and_one_without_an_answer() -> None:
    async def slow(request: pb.GetStatusRequest) -> pb.GetStatusReply:
        await asyncio.sleep(30)
        return pb.GetStatusReply()

    async with serving(slow) as address:
        with pytest.raises(DeadlineExceeded):
            await ask(address, timeout_s=0.1)
        with pytest.raises((Unavailable, DeadlineExceeded)):
            await ask("127.0.0.1:1", timeout_s=1)


async def test_without_a_key_health_and_reflection_speak_to_anybody() -> None:
    async with serving(status) as address, grpc.aio.insecure_channel(address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "threefs.wire.Manager"):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
        names = [s.name for reply in [r async for r in call] for s in reply.list_services_response.service]
        assert "threefs.wire.Manager" in names


async def test_with_a_key_health_and_reflection_need_it_too() -> None:
    async with serving(status, token=KEY) as address, grpc.aio.insecure_channel(address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await health.Check(health_pb2.HealthCheckRequest())
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        with pytest.raises(grpc.aio.AioRpcError, match="has a key"):
            await anext(aiter(health.Watch(health_pb2.HealthCheckRequest())))
        question = reflection_pb2.ServerReflectionRequest(list_services="")
        with pytest.raises(grpc.aio.AioRpcError, match="has a key"):
            await anext(aiter(stub.ServerReflectionInfo(iter([question]))))
        client = ControlClient(address, KEY)
        await client.call(GET_STATUS, pb.GetStatusRequest(), timeout_s=5)  # it knows the challenge now
        _, proof = client.metadata("/grpc.health.v1.Health/Check")
        answer = await health.Check(health_pb2.HealthCheckRequest(), metadata=proof)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.aio.AioRpcError, match="copy"):
            await health.Check(health_pb2.HealthCheckRequest(), metadata=proof)
        _, proof = client.metadata("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
        replies = [each async for each in stub.ServerReflectionInfo(iter([question]), metadata=proof)]
        assert len(replies) == 1
        await client.close()


async def test_a_proof_is_of_one_request() -> None:
    """Somebody between takes the proof of a call, and puts it on another one."""

    async with serving(status, token=KEY) as address:
        client = ControlClient(address, KEY)
        await client.call(GET_STATUS, pb.GetStatusRequest(), timeout_s=5)
        path = f"/{GET_STATUS.service}/{GET_STATUS.name}"
        _, proof = client.metadata(path, b"what was asked")
        async with grpc.aio.insecure_channel(address) as channel:
            with pytest.raises(grpc.aio.AioRpcError, match="another request"):
                await channel.unary_unary(path, None, None)(b"", metadata=proof)
        await client.close()


async def test_an_answer_of_a_process_without_the_key_does_not_count() -> None:
    async def lie(request: pb.GetStatusRequest) -> pb.GetStatusReply:
        return pb.GetStatusReply(cluster_id="forged")

    async def fail(request: pb.GetStatusRequest) -> pb.GetStatusReply:
        raise Fenced("forged")

    for handler in (lie, fail):
        async with serving(handler) as address:
            with pytest.raises(Unavailable, match="key"):
                await ask(address, KEY)


async def test_a_process_that_refuses_all_proofs_does_not_hold_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one without the key, with a new challenge each time: the call went on for ever, and with its whole time for
    each try."""
    refused: list[str] = []

    def refuse(gate: Gate, method: str, text: str) -> Proof:
        refused.append(text)
        gate._changes_at = 0.0
        raise NotAuthorised("not this one")

    monkeypatch.setattr(Gate, "admit", refuse)

    async def answer(request: pb.GetStatusRequest) -> pb.GetStatusReply:
        raise AssertionError("no call is admitted")

    async with serving(answer, KEY) as address:
        with pytest.raises(NotAuthorised):
            await asyncio.wait_for(ask(address, KEY), 30)
    assert 1 < len(refused) <= 3


async def test_an_address_that_is_taken_is_named_or_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = ControlServer(), ControlServer()
    address = await first.start("127.0.0.1", 0)
    taken = int(address.rsplit(":", 1)[1])
    with pytest.raises(Unavailable, match="cannot listen"):
        await second.start("127.0.0.1", taken)
    monkeypatch.setattr(ports, "candidates", lambda: iter([taken, ports.ANY]))
    assert await second.start("127.0.0.1", 0) not in (address, "127.0.0.1:0")
    await first.stop(0.1)
    await second.stop(0.1)


async def test_an_address_of_ipv6_stands_in_brackets() -> None:
    server = ControlServer("")
    server.serve(GET_STATUS, status)
    address = await server.start("::1", 0)
    try:
        assert address.startswith("[::1]:")
        assert (await ask(address)).manager_epoch == 3
    finally:
        await server.stop(0.5)


async def test_a_call_without_a_proof_is_refused_before_the_request_is_read() -> None:
    """60 requests of 15 MiB of somebody without the key made a manager hold 900 MiB."""

    async with serving(status, token=KEY) as address:

        async def nothing() -> AsyncIterator[bytes]:
            await asyncio.Event().wait()
            yield b""

        async with grpc.aio.insecure_channel(address) as channel:
            path = f"/{GET_STATUS.service}/{GET_STATUS.name}"
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.stream_unary(path, None, None)(nothing(), timeout=10)
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.unary_unary(path, None, None)(bytes(3 << 20), timeout=10)
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert (await ask(address, KEY)).manager_epoch == 3


#: What a connection says before it falls silent: nothing, a part of what HTTP/2 begins with, all of it.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_SETTINGS = bytes(3) + b"\x04" + bytes(5)


def _http2_frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    return len(content).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + content


def _literal(name: bytes, value: bytes) -> bytes:
    """A header in HPACK; `name` is its text, or its index in the static table."""
    return name + bytes([len(value)]) + value


async def test_a_connection_has_only_so_many_calls_in_flight() -> None:
    """Four connections that read nothing made a manager hold 3 GiB, by 3 MB of headers of calls, without the key."""
    path = f"/{GET_STATUS.service}/{GET_STATUS.name}".encode()
    begun = b"\x83\x86" + _literal(b"\x04", path) + _literal(b"\x01", b"x") + _literal(b"\x0f\x10", b"application/grpc")
    begun += _literal(b"\x00\x02te", b"trailers")
    async with serving(status) as address, RawPeer(address) as raw:
        raw.writer.write(_PREFACE + _SETTINGS + _http2_frame(kind=4, flags=1, stream=0))
        for number in range(100):
            raw.writer.write(_http2_frame(kind=1, flags=4, stream=2 * number + 1, content=begun))  # no request follows
        kind, _, settings = await _next_http2_frame(raw)
        assert kind == 4 and b"\x00\x03" + (32).to_bytes(4, "big") in settings, "clients are told the bound"
        refused = set[int]()
        async with asyncio.timeout(60):
            while len(refused) < 100 - 32:
                kind, stream, _ = await _next_http2_frame(raw)
                if kind == 3:  # RST_STREAM
                    refused.add(stream)
        assert (await ask(address)).manager_epoch == 3


async def _next_http2_frame(raw: RawPeer) -> tuple[int, int, bytes]:
    """Kind, stream and content."""
    head = await raw.reader.readexactly(9)
    return head[3], int.from_bytes(head[5:], "big"), await raw.reader.readexactly(int.from_bytes(head[:3], "big"))


@pytest.mark.parametrize("said", [b"", _PREFACE[:7], _PREFACE + _SETTINGS])
async def test_connections_without_calls_are_bounded_and_end(said: bytes) -> None:
    async with serving(status, limits=Limits(connections=20, hello_s=0.5, idle_s=1.0)) as address:
        host, port = parse_address(address)
        silent = [await asyncio.open_connection(host, port) for _ in range(50)]
        for _, writer in silent:
            writer.write(said)
        async with asyncio.timeout(30):
            for reader, writer in silent:
                with contextlib.suppress(ConnectionError):
                    while await reader.read(1 << 16):
                        pass
                writer.close()
        assert (await ask(address)).manager_epoch == 3
