"""Two honest sides agree; whoever lacks the key, copies, mirrors, alters or passes on gets nowhere."""

import asyncio
from collections.abc import Callable

import pytest

from tests.harness.rpc import NETS, RawPeer, Served, identity
from threefs.env.net import RealNet, Stream
from threefs.errors import NotAuthorised, ProtocolError, ThreefsError, WrongCluster, WrongVersion
from threefs.rpc import frames, handshake
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.handshake import ClientHandshake, Identity, ServerHandshake, check_cluster
from threefs.rpc.methods import SPACE_INFO
from threefs.wire.common_pb2 import Hello
from threefs.wire.storage_pb2 import SpaceInfoReply, SpaceInfoRequest

KEY = "0123456789abcdef" * 4
HERE = "127.0.0.1 7000"
SERVER = identity("a" * 32, token=KEY, program="threefs-meta")
CLIENT = identity("", token=KEY, program="python")

Change = Callable[[bytes], bytes]


def same(message: bytes) -> bytes:
    return message


def meet(
    server: Identity = SERVER,
    client: Identity = CLIENT,
    *,
    there: str = HERE,
    first: Change = same,
    second: Change = same,
    third: Change = same,
) -> tuple[Hello, Hello | None, list[bytes]]:
    """(what the client learned, what the server learned, all that was said); the changes are of somebody between."""
    one, other = ClientHandshake(client, HERE, "127.0.0.1:7000"), ServerHandshake(there)
    said = [one.begin()]
    known, answer = other.take(first(said[0]), server)
    said.append(answer)
    learned, answer = one.answer(second(answer))
    if answer:
        said.append(answer)
        known, nothing = other.take(third(answer), server)
        assert not nothing
    return learned, known, said


def test_with_a_key_both_sides_prove_it_and_never_say_it() -> None:
    learned, known, said = meet()
    assert learned.cluster_id == "a" * 32 and known is not None and known.client_id == CLIENT.client_id
    assert len(said) == 3 and not any(KEY.encode() in message for message in said)


def test_the_client_says_nothing_of_itself_before_the_server_has_proven_itself() -> None:
    first = Hello.FromString(ClientHandshake(identity("c" * 32, token=KEY, program="python"), HERE, "x").begin())
    assert {field.name for field, _ in first.ListFields()} == {"protocol", "nonce"}


def test_without_a_key_two_messages_are_enough() -> None:
    learned, known, said = meet(identity("a" * 32), identity("", program="python"))
    assert learned.cluster_id == "a" * 32 and known is not None and known.program == "python" and len(said) == 2


@pytest.mark.parametrize(
    ("server", "client", "error", "words"),
    [
        (SERVER, identity("a" * 32), NotAuthorised, "--key-file"),
        (SERVER, identity("a" * 32, token=KEY[::-1]), NotAuthorised, "different keys"),
        (identity("a" * 32), CLIENT, NotAuthorised, "has none"),
        (SERVER, identity("b" * 32, token=KEY), WrongCluster, "belongs to cluster"),
        (identity("a" * 32), identity("b" * 32), WrongCluster, "belongs to cluster"),
    ],
)
def test_a_peer_of_another_cluster_gets_the_reason(
    server: Identity, client: Identity, error: type[ThreefsError], words: str
) -> None:
    with pytest.raises(error, match=words):
        meet(server, client)


def test_every_bit_of_the_exchange_is_covered_by_a_proof() -> None:
    lengths = [len(message) for message in meet()[2]]
    for turn, name in enumerate(("first", "second", "third")):
        for bit in range(0, lengths[turn] * 8, 3):

            def flip(message: bytes, bit: int = bit) -> bytes:
                changed = bytearray(message)
                changed[bit // 8] ^= 1 << bit % 8
                return bytes(changed)

            with pytest.raises((NotAuthorised, ProtocolError, WrongVersion)):
                meet(**{name: flip})  # type: ignore[arg-type]


def test_a_field_of_a_later_version_is_covered_too() -> None:
    more = b"\xfa\x01\x01x"  # field 31, which nobody knows yet
    with pytest.raises(NotAuthorised):
        meet(first=lambda message: message + more)


def test_a_relay_from_another_port_is_detected() -> None:
    with pytest.raises(NotAuthorised, match="passes their messages on"):
        meet(there="127.0.0.1 7001")


def test_the_client_finds_that_out_before_it_says_anything() -> None:
    client, relayed = ClientHandshake(CLIENT, HERE, "x"), ServerHandshake("127.0.0.1 7001")
    _, challenge = relayed.take(client.begin(), SERVER)
    with pytest.raises(NotAuthorised):
        client.answer(challenge)


def test_an_old_exchange_proves_nothing() -> None:
    old = meet()[2]
    with pytest.raises(NotAuthorised):
        meet(second=lambda _: old[1])
    with pytest.raises(NotAuthorised):
        meet(third=lambda _: old[2])
    server = ServerHandshake(HERE)
    server.take(old[0], SERVER)
    with pytest.raises(NotAuthorised):
        server.take(old[2], SERVER)


def test_the_proof_of_a_server_is_none_of_a_client() -> None:
    """Somebody without the key who is asked for a proof, and has the server make it."""
    server, asked = ServerHandshake(HERE), ServerHandshake(HERE)
    first = ClientHandshake(CLIENT, HERE, "x").begin()
    _, challenge = server.take(first, SERVER)
    _, mirrored = asked.take(first, SERVER)
    for proof in (challenge, mirrored):
        with pytest.raises(NotAuthorised):
            server.take(proof, SERVER)


def test_hello_of_another_version_and_garbage() -> None:
    with pytest.raises(WrongVersion):
        handshake.read(Hello(protocol=99).SerializeToString())
    with pytest.raises(ProtocolError):
        handshake.read(b"\xff\xff\xff")


# ---- over sockets


async def answer(request: SpaceInfoRequest) -> SpaceInfoReply:
    return SpaceInfoReply()


@pytest.mark.parametrize("net", NETS)
async def test_calls_go_with_the_right_key_and_only_with_it(net: str) -> None:
    async with Served(net=NETS[net], mine=SERVER, theirs=CLIENT) as (server, peers, address):
        server.serve(SPACE_INFO, answer)
        await peers.call(address, SPACE_INFO, SpaceInfoRequest(), timeout_s=5)
        assert (await peers.connect(address, 5)).cluster_id == "a" * 32
        for stranger in (identity(), identity(token="wrong")):
            others = ConnectionPool(NETS[net](), stranger)
            with pytest.raises(NotAuthorised):
                await others.call(address, SPACE_INFO, SpaceInfoRequest(), timeout_s=5)
            await others.close()


async def test_a_call_before_the_proof_is_no_call() -> None:
    async with Served(mine=SERVER) as (server, _, address), RawPeer(address) as peer:
        server.serve(SPACE_INFO, answer)
        peer.writer.write(handshake.frame(Hello(protocol=frames.PROTOCOL, nonce=bytes(32)).SerializeToString()))
        assert (await peer.frame())[0].kind == frames.HELLO
        peer.writer.write(frames.encode(frames.REQUEST, SPACE_INFO.number, 0, 1, deadline_ms=1000))
        assert isinstance(await peer.goodbye(), ProtocolError)


async def test_an_impostor_hears_a_nonce_and_nothing_else() -> None:
    heard: list[bytes] = []

    async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(1 << 16))
        lie = handshake.hello(identity("a" * 32))
        lie.nonce = lie.proof = bytes(32)
        writer.write(handshake.frame(lie.SerializeToString()))
        heard.append(await reader.read(1 << 16))
        writer.close()

    server = await asyncio.start_server(pretend, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    peers = ConnectionPool(RealNet(), identity("a" * 32, token=KEY))
    try:
        with pytest.raises(NotAuthorised):
            await peers.connect(address, 5)
    finally:
        await peers.close()
        server.close()
    said = Hello.FromString(heard[0][frames.HEADER_BYTES :])
    assert {field.name for field, _ in said.ListFields()} == {"protocol", "nonce"}
    assert b"a" * 32 not in heard[1], "it says why it goes, and that is all"


@pytest.mark.parametrize("net", NETS)
async def test_both_ends_call_the_end_of_the_service_the_same(net: str) -> None:
    accepted: asyncio.Queue[Stream] = asyncio.Queue()
    listener = await RealNet().listen("127.0.0.1", 0, accepted.put_nowait)
    stream = await NETS[net]().connect(listener.address, 5)
    other = await accepted.get()
    port = listener.address.rpartition(":")[2]
    assert stream.service == other.service and port in stream.service
    for end in (stream, other, listener):
        end.close()


def test_a_key_is_never_printed() -> None:
    assert "secret" not in repr(Identity("c", "0" * 32, token="secret-secret"))


def test_identities_of_two_clusters_differ() -> None:
    check_cluster("a", "a")
    check_cluster("", "a")
    check_cluster("a", "")
    with pytest.raises(WrongCluster):
        check_cluster("a", "b")
