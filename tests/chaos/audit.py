"""After a chaos run: replicas of a chunk, read from their processes, must be the same, and the file system whole."""

from collections.abc import Sequence
from functools import partial

import threefs_client
from threefs_fsck.check import check

from tests.chaos.cluster import KEY
from tests.chaos.load import CHUNKS, FIRST_INODE, place
from tests.harness.namespace_audit import audit_store
from threefs.cluster.routing_watcher import RoutingWatcher
from threefs.env.clock import CLOCK
from threefs.env.net import RealNet
from threefs.errors import Retry, ThreefsError, error_of
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.handshake import Identity
from threefs.rpc.methods import READ
from threefs.wire import storage_pb2 as pb

_LENGTH = 64 << 10
_PAUSE_S = 0.1


async def replicas(managers: Sequence[str], limit_s: float) -> list[str]:
    """I4: (code, version, bytes) of each chunk are equal on all targets of its chain.

    I13: these serve, within that time. A manager that was restarted believes what it has stored, until it has heard
    that a storage process was restarted with it: what it says is no proof that nobody is being filled again.
    """
    peers = ConnectionPool(RealNet(), Identity("", "0" * 32, KEY, "audit"))
    cluster = RoutingWatcher(peers, list(managers))
    found, end = [], CLOCK.monotonic() + limit_s
    try:
        await cluster.start(10)
        for chunk in range(CHUNKS):
            states = await _states(peers, cluster, chunk)
            while len(states) != 3 and CLOCK.monotonic() < end:
                await CLOCK.sleep(_PAUSE_S)
                states = await _states(peers, cluster, chunk)
            if len(states) != 3 or len(set(states.values())) != 1:
                shown = {target: (code, version, data[:16]) for target, (code, version, data) in states.items()}
                found.append(f"I4: chunk {chunk} differs: {shown}")
    finally:
        await cluster.close()
        await peers.close()
    return found


async def _states(peers: ConnectionPool, cluster: RoutingWatcher, chunk: int) -> dict[int, tuple[int, int, bytes]]:
    """By target; of those that serve and answer."""
    inode, layout = place(chunk)
    routing = cluster.routing
    chain = routing.chains[layout.chain_of(routing.tables[layout.table_id], 0)]
    states = {}
    for target in chain.serving:
        into = memoryview(bytearray(_LENGTH))
        request = pb.ReadRequest(
            target=[target], chain_version=[chain.version], inode=[inode], index=[0], offset=[0], length=[_LENGTH]
        )
        try:
            reply = await peers.call(
                routing.address_of(target), READ, request, timeout_s=10, sink=partial(_front, into)
            )
        except ThreefsError:
            continue
        if error_of(reply.code[0]).retry is not Retry.NEVER:  # its chain changes at this moment
            continue
        states[int(target)] = (reply.code[0], reply.version[0], bytes(into[: reply.length[0]]))
    return states


def _front(into: memoryview, _: object, size: int) -> list[memoryview]:
    return [into[:size]]


async def fsck(address: str) -> list[str]:
    """What `threefs fsck` finds, but for the chunks that the load wrote without a file."""
    fs = await threefs_client.connect_async(address, timeout_s=60.0, token=KEY)
    try:
        report = await check(fs)
    finally:
        await fs.close()
    found = [
        f"fsck: {one.kind}: {one.detail}"
        for one in report.findings
        if not (one.kind == "orphan_chunk" and FIRST_INODE <= one.inode < FIRST_INODE + CHUNKS)
    ]
    if not report.inodes or not report.chunks:
        found.append("fsck looked at nothing")
    return found


async def namespace(store: str) -> list[str]:
    """I10, from the store of the meta services, which have stopped."""
    try:
        await audit_store(store)
    except AssertionError as error:
        return [f"I10: {error}"]
    return []
