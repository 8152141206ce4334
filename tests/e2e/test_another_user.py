"""What another user of the machine can do with a cluster that root has started: nothing, until root lets them in."""

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import threefs_client
from threefs_cli.cluster_file import ClusterFile, Plan
from threefs_cli.local_cluster import LocalCluster

from tests.harness.other_user import NOBODY, needs_root, nobody_does, run_as_nobody
from threefs.errors import ThreefsError
from threefs.routing import PublicState
from threefs.rpc import methods
from threefs.wire import manager_pb2

pytestmark = needs_root

CLIENT = """
import sys, threefs
fs = threefs.connect(sys.argv[1], connect_timeout_s=30.0)
"""

#: Every service and method by hand, without a key.
CALLS = """
import asyncio, os, sys
from threefs.env.net import RealNet
from threefs.errors import NotAuthorised
from threefs.rpc import methods
from threefs.rpc.grpc_binding import ControlClient
from threefs.rpc.handshake import Identity
from threefs.rpc.methods import Method
from threefs.rpc.connection_pool import ConnectionPool

async def main(control, *addresses):
    every = [one for one in vars(methods).values() if isinstance(one, Method)]
    tried = 0
    for token in ("", "a guess of some length"):
        peers = ConnectionPool(RealNet(), Identity("", os.urandom(16).hex(), token, "guest"))
        client = ControlClient(control, token)
        for method in every:
            for address in addresses:
                try:
                    print("answered", method, await peers.call(address, method, method.request(), timeout_s=5))
                except NotAuthorised:
                    tried += 1
        for method in (one for one in every if one.service == methods.REGISTER.service and one is not methods.PRESENCE):
            try:
                print("answered", method, await client.call(method, method.request(), timeout_s=5))
            except NotAuthorised:
                tried += 1
        await peers.close()
        await client.close()
    print("refused", tried, len(every))

asyncio.run(main(*sys.argv[1:]))
"""

#: As the one who does not know of any handshake: HELLO as it was once, and a Register for each storage node behind it.
FORGED = """
import asyncio, sys
from threefs.rpc import frames
from threefs.rpc.methods import REGISTER
from threefs.wire import manager_pb2 as pb
from threefs.wire.common_pb2 import Hello

async def main(address, *nodes):
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    hello = Hello(protocol=frames.PROTOCOL, client_id="0" * 32, program="forged").SerializeToString()
    said = frames.encode(frames.HELLO, body=hello)
    for call, node in enumerate(nodes, 1):
        body = pb.RegisterRequest(node_id=int(node), kind=pb.STORAGE, address=f"127.0.0.1:{call}", incarnation=7)
        body = body.SerializeToString()
        said += frames.encode(frames.REQUEST, REGISTER.number, call_id=call, body=body, deadline_ms=5000)
    writer.write(said)
    try:
        print((await asyncio.wait_for(reader.read(), 5)).decode("latin1"))
    except ConnectionError:
        print("cut off")

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterFile]:
    directory = tmp_path_factory.mktemp("of-root") / "cluster"
    local = LocalCluster(directory)
    yield asyncio.run(local.up(Plan(storage=2, replicas=2)))
    asyncio.run(local.down())


@pytest.fixture(scope="module")
def key_file(state: ClusterFile) -> Path:
    """The note of the only cluster that was started here."""
    return next(Path(os.environ["XDG_DATA_HOME"], "threefs", "keys").iterdir()).resolve()


@pytest.fixture(scope="module")
def fs(state: ClusterFile) -> Iterator[threefs_client.FileSystem]:
    with threefs_client.connect(state.address) as connected:
        connected.write_file("/readable", b"for all")
        with connected.open("/secret", "wb", permissions=0o600) as file:
            file.write(b"for root")
        yield connected


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of nobody; outside of what belongs to root alone."""
    place = Path(f"/tmp/threefs-test-nobody-{os.getpid()}")
    place.mkdir(mode=0o700)
    os.chown(place, NOBODY, NOBODY)
    yield place
    shutil.rmtree(place)


def addresses(state: ClusterFile) -> list[str]:
    return [program.addresses[0] for program in state.programs]


def test_the_library_is_given_the_key(state: ClusterFile, fs: threefs_client.FileSystem, home: Path) -> None:
    for work in ('fs.read_file("/readable")', 'fs.write_file("/mine", b"x")', 'fs.remove("/readable")'):
        done = run_as_nobody(CLIENT + work, state.address, home=home)
        last = done.stderr.strip().splitlines()[-1]
        assert done.returncode == 1 and "NotAuthorised" in last
        assert "$THREEFS_KEY_FILE" in last and "--key-file" in last and "docs/security.md" in last
        assert "/root" not in last and str(home) not in last
    assert fs.read_file("/readable") == b"for all" and not fs.exists("/mine")


def test_no_method_of_any_service_answers(state: ClusterFile, home: Path) -> None:
    control = state.program("manager").addresses[1]
    done = run_as_nobody(CALLS, control, *addresses(state), home=home)
    assert done.returncode == 0, done.stderr
    word, refused, every = done.stdout.split()
    assert word == "refused" and int(refused) >= 2 * int(every) * len(addresses(state))


def test_a_forged_registration_displaces_no_node(state: ClusterFile, fs: threefs_client.FileSystem, home: Path) -> None:
    done = run_as_nobody(FORGED, addresses(state)[0], "1", "2", home=home)
    assert done.returncode == 0, done.stderr
    assert "has a key" in done.stdout or "cut off" in done.stdout
    fs.write_file("/after", b"x" * 100_000)
    with threefs_client.connect(state.address) as another:
        assert another.read_file("/after") == b"x" * 100_000
    deadline = time.monotonic() + 60
    while {member.state for chain in asyncio.run(_chains(fs)) for member in chain.members} != {
        PublicState.SERVING.value
    }:
        assert time.monotonic() < deadline, "a node that was displaced would not come back"
        time.sleep(0.1)


async def _chains(fs: threefs_client.FileSystem) -> list[manager_pb2.Chain]:
    async with await threefs_client.connect_async(fs.address) as connected:
        reply = await connected.context.peers.call(
            connected.context.cluster.manager, methods.GET_STATUS, manager_pb2.GetStatusRequest(), timeout_s=10.0
        )
        return list(reply.chains)


def test_files_of_the_cluster_are_closed(state: ClusterFile, key_file: Path, home: Path) -> None:
    code = "import os, sys\nfor path in sys.argv[1:]:\n    print(os.access(path, os.R_OK), os.access(path, os.W_OK))"
    paths = [key_file.parent, key_file, *key_file.parent.rglob("*")]
    done = run_as_nobody(code, *map(str, paths), home=home)
    assert len(paths) > 20 and set(done.stdout.splitlines()) == {"False False"}


PRETEND = """
import socket, sys, time
taken = []
for family, name in ((socket.AF_INET, (sys.argv[1], int(sys.argv[2]))), (socket.AF_UNIX, chr(0) + sys.argv[3])):
    sock = socket.socket(family)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    while True:
        try:
            sock.bind(name)
            break
        except OSError as error:  # somebody may have been given the port for a moment, to call from
            print(error, file=sys.stderr)
            time.sleep(0.05)
    sock.listen()
    taken.append(sock)
print("listens", flush=True)
while True:
    peer, _ = taken[0].accept()
    print("heard", peer.recv(1 << 16).hex(), flush=True)
    peer.close()
"""


def test_a_process_in_the_place_of_a_service_learns_nothing_and_its_start_fails_with_an_error(
    tmp_path: Path, home: Path
) -> None:
    local = LocalCluster(tmp_path / "cluster")
    state = asyncio.run(local.up(Plan(storage=1, replicas=1)))
    try:
        key = (local.directory / "key").read_text().strip()
        asyncio.run(local.kill("manager"))
        host, _, port = state.program("manager").addresses[0].partition(":")
        with nobody_does(PRETEND, host, port, f"threefs.{host}.{port}", home=home) as impostor:
            with pytest.raises(ThreefsError):
                threefs_client.connect(state.address, connect_timeout_s=2.0)
            assert impostor.stdout is not None
            heard = bytes.fromhex(impostor.stdout.readline().split()[1])
            assert key.encode() not in heard and len(heard) < 100
            with pytest.raises(OSError, match=r"cannot listen on 127\.0\.0\.1"):
                asyncio.run(local.up())
            os.kill(impostor.pid, signal.SIGKILL)
        asyncio.run(local.up())
        with threefs_client.connect(state.address) as fs:
            assert fs.list("/") is not None
    finally:
        asyncio.run(local.down())


LET_IN = """
import sys, threefs
fs = threefs.connect(sys.argv[1], connect_timeout_s=30.0)
print(fs.read_file("/readable").decode())
for work in (
    lambda: fs.read_file("/secret"),
    lambda: fs.open("/secret", "rb"),
    lambda: fs.read_batch([("/secret", 0, 10)]),
    lambda: fs.open("/readable", "r+b"),
    lambda: fs.write_file("/mine", b"x"),
    lambda: fs.remove("/readable"),
    lambda: fs.rename("/readable", "/moved"),
    lambda: fs.chmod("/readable", 0o777),
    lambda: fs.chown("/readable", 65534, 65534),
    lambda: fs.quotas.set("/", limit_bytes=1),
    lambda: fs.trash.set("/", 1),
):
    try:
        work()
        print("allowed")
    except PermissionError as error:
        print("denied")
"""


def test_a_caller_with_a_proof_acts_under_its_identity(
    state: ClusterFile, fs: threefs_client.FileSystem, key_file: Path, home: Path
) -> None:
    theirs = home / "key"
    shutil.copyfile(key_file, theirs)
    theirs.chmod(0o600)
    os.chown(theirs, NOBODY, NOBODY)
    named = f"import os; os.environ['THREEFS_KEY_FILE'] = {str(theirs)!r}\n"
    done = run_as_nobody(named + LET_IN, state.address, home=home)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n") == ["for all", *["denied"] * 11, ""]
    fs.mkdir("/theirs")
    fs.chown("/theirs", NOBODY, NOBODY)
    work = 'fs.write_file("/theirs/a", b"x"); fs.mkdir("/theirs/d"); fs.remove("/theirs/d")'
    assert run_as_nobody(named + CLIENT + work, state.address, home=home).returncode == 0
    assert (fs.stat("/theirs/a").uid, fs.stat("/theirs/a").gid) == (NOBODY, NOBODY)
    command = "from threefs_cli.main import main; main()"
    become = f"import sys; sys.argv[1:] = ['rm', '/readable', '--address', {state.address!r}]\n"
    done = run_as_nobody(named + become + command, home=home)
    assert done.returncode == 1 and "user 65534 has no permission to write" in done.stderr


OWN = """
import asyncio, os, sys
from pathlib import Path
import threefs
from threefs_cli.cluster_file import Plan
from threefs_cli.local_cluster import LocalCluster
from threefs_cli.main import main

local = LocalCluster(Path.home() / "cluster")
state = asyncio.run(local.up(Plan(storage=1, replicas=1)))
try:
    with threefs.connect(state.address) as fs:
        fs.mkdir("/d")
        fs.write_file("/d/a", b"mine")
        fs.quotas.set("/d", limit_inodes=10)
        assert fs.quotas.show("/d").limit_inodes == 10 and fs.quotas.list()
        fs.trash.set("/d", 60)
        fs.remove("/d/a")
        assert [item.original for item in fs.trash.list()] == ["/d/a"]
        assert (fs.stat("/").uid, fs.stat("/d").uid) == (os.getuid(), os.getuid())
        fs.acting_as(0, 0).write_file("/of-root", b"x", )
        fs.acting_as(0, 0).chmod("/of-root", 0o600)
        try:
            fs.read_file("/of-root")
            print("allowed")
        except PermissionError:
            print("denied")
    main(["fsck", "--address", state.address], standalone_mode=False)
finally:
    asyncio.run(local.down())
"""


def test_a_new_cluster_admits_only_the_user_that_started_it(home: Path) -> None:
    """Without being root: the root directory is theirs, quotas too, and they are no super-user."""
    done = run_as_nobody(OWN, home=home)
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stdout.startswith("denied\n")
