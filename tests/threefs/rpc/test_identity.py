import pytest

from tests.support.rpc import Served, identity, run
from threefs.errors import NotAuthorised, ProtocolError, ThreefsError, WrongCluster, WrongVersion
from threefs.rpc.identity import Identity, check_cluster, check_token, hello_frame, read_hello
from threefs.rpc.methods import SPACE_INFO
from threefs.wire.common_pb2 import Hello
from threefs.wire.storage_pb2 import SpaceInfoReply, SpaceInfoRequest


def test_a_token_is_never_printed_and_never_sent_back() -> None:
    mine = Identity("c", "0" * 32, token="secret-secret")
    assert "secret" not in repr(mine)
    assert b"secret" not in hello_frame(mine, with_token=False)
    assert b"secret" in hello_frame(mine, with_token=True)


def test_hello_of_another_version_and_garbage() -> None:
    with pytest.raises(WrongVersion):
        read_hello(Hello(protocol=99).SerializeToString())
    with pytest.raises(ProtocolError):
        read_hello(b"\xff\xff\xff")


def test_checks() -> None:
    check_cluster("a", "a")
    check_cluster("", "a")
    check_cluster("a", "")
    check_token("", "whatever")
    check_token("é", "é")
    with pytest.raises(WrongCluster):
        check_cluster("a", "b")
    with pytest.raises(NotAuthorised):
        check_token("a", "")


@pytest.mark.parametrize(
    ("mine", "theirs", "error"),
    [
        (identity("a" * 32), identity("b" * 32), WrongCluster),
        (identity("a" * 32, token="x"), identity("a" * 32, token="y"), NotAuthorised),
        (identity("a" * 32, token="x"), identity("a" * 32), NotAuthorised),
    ],
)
def test_a_peer_that_does_not_belong_here_is_told_why(
    mine: Identity, theirs: Identity, error: type[ThreefsError]
) -> None:
    async def test() -> None:
        async with Served(mine=mine, theirs=theirs) as (_, peers, address):
            for _ in range(2):
                with pytest.raises(error):
                    await peers.call(address, SPACE_INFO, SpaceInfoRequest(), timeout_s=5)

    run(test)


def test_a_client_learns_the_cluster_from_the_server() -> None:
    async def test() -> None:
        async with Served(mine=identity("a" * 32, token="x"), theirs=identity("", token="x")) as (
            server,
            peers,
            address,
        ):

            async def answer(request: SpaceInfoRequest) -> SpaceInfoReply:
                return SpaceInfoReply()

            server.serve(SPACE_INFO, answer)
            connection = await peers.connect(address, 5)
            assert connection.cluster_id == "a" * 32
            await connection.call(SPACE_INFO, SpaceInfoRequest(), timeout_s=5)

    run(test)
