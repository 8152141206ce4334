"""What a cluster at rest must not keep: work that has died, memory that is lent, space that nothing names."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator

from threefs_client.context import ClientContext
from threefs_client.data.grants import Grants
from threefs_meta.node import MetaNode
from threefs_storage.engine.chunk_record import Block
from threefs_storage.engine.engine import ChunkEngine
from threefs_storage.engine.overlay import BlobKey, range_of_blobs
from threefs_storage.node import StorageNode

from tests.sim import live_tasks
from tests.sim.world import World
from threefs.byte_budget import ByteBudget
from threefs.cluster.chunk_client import ChunkClient
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.methods import GET_ROUTING, PRESENCE
from threefs.rpc.server import Server

_LOOKS = 60  # what is given back lazily is given back by then, and who lost an answer of the store asks again
_PAUSE_S = 0.04
#: Calls of a cluster at rest: the answer comes with the next event.
_WAIT_FOR_NEWS = (GET_ROUTING, PRESENCE)


async def kept(world: World, links: dict[str, ClientContext]) -> list[str]:
    """All that is not as it was before there was any load (I14, I19, I20). No call of a client may be under way. The
    scrubbers are stopped: what they hold just now is not kept."""
    dead = await _lasting(lambda: live_tasks.missing(world, links))
    for host, node in world.storages.items():
        await world.processes[host].start(node.storage.scrubber.stop())
    return dead + await _lasting(lambda: found(world, links))


async def kept_by_meta_services(world: World) -> list[str]:
    """The same of these alone, which must run."""
    return await _lasting(
        lambda: [
            *(missed for host in world.meta_hosts for missed in live_tasks.missing_at(world, host)),
            *(f"{host} {what}" for host, node in world.metas.items() for what in _memory_of_meta(node)),
        ]
    )


async def _lasting(look: Callable[[], list[str]]) -> list[str]:
    """Complaints that come again with each look."""
    lasting = look()
    for _ in range(_LOOKS):
        if not lasting:
            break
        await asyncio.sleep(_PAUSE_S)
        now = {complaint.split(":")[0] for complaint in look()}
        lasting = [complaint for complaint in lasting if complaint.split(":")[0] in now]
    return lasting


def found(world: World, links: dict[str, ClientContext]) -> list[str]:
    """What there is of that now."""
    complaints: list[str] = []
    for host, node in world.storages.items():
        if not world.processes[host].running:
            continue
        complaints += [f"{host} {what}" for what in _memory(node)]
        rotten = world.disks[host].rotten_records
        for target in node.targets:
            name = f"target {target.target_id} of {host}"
            complaints += [f"{name} {what}" for what in _space(target.engine, rotten)]
            if len(target.locks) or target._change_epochs:
                complaints.append(f"{name} is not at rest: {len(target.locks)} chunks are locked")
    for host, meta in world.metas.items():
        if world.processes[host].running:
            complaints += [f"{host} {what}" for what in _memory_of_meta(meta)]
    for host, server in world.manager_servers.items():
        if world.processes[host].running:
            complaints += [f"{host} {what}" for what in _memory_of_server(server)]
    for host, link in links.items():
        complaints += [f"{host} {what}" for what in _changes(link.chunks)]
        if link.grants is not None:
            complaints += [f"{host} {what}" for what in _grants(link.grants)]
    return complaints


def _changes(chunks: ChunkClient) -> Iterator[str]:
    if chunks._budget._used:
        yield f"counts bytes of writes in flight, and nothing is under way: {chunks._budget._used} (I20)"
    if chunks._locked:
        yield f"takes chunks for being changed: {sorted(chunks._locked)} (I13)"


def _grants(grants: Grants) -> Iterator[str]:
    budget = grants.budget
    if budget.bytes or budget.senders or budget.waiting:
        yield (
            f"counts answers that may come, and none is under way: {budget.bytes} bytes of {budget.senders} senders, "
            f"{budget.waiting} that wait (I20)"
        )
    if grants._held:
        yield f"keeps slots of its host that it does not use: {grants._held} (I20)"


def _memory(node: StorageNode) -> Iterator[str]:
    yield from _memory_of_server(node._server)
    yield from _windows(node._peers)
    for target in node.targets:
        if target.engine._buffers.lent_bytes:
            yield f"lends buffers of target {target.target_id}: {target.engine._buffers.lent_bytes} bytes (I14)"
        if target._chain_waits:
            yield f"takes calls of target {target.target_id} for being under way: none is (I20)"
    in_flight = node.storage._writes._in_flight
    if in_flight:
        yield f"counts changes of batches in flight: {in_flight} (I20)"
    for name, budget in _budgets(node):
        if budget.used_bytes or budget.is_short:
            yield f"counts bytes of {name}, and nothing is under way: {budget.used_bytes} (I20)"


def _budgets(node: StorageNode) -> Iterator[tuple[str, ByteBudget]]:
    storage, memory = node.storage, node.targets._memory
    for hops, whole_chunks in enumerate(storage._craq._successor._budgets):
        yield f"whole chunks with {hops} hops to go", whole_chunks
    yield "resync", storage._resync._budget
    for name, scratch in (("changes", memory.changes), ("reads", memory.reads), ("pieces", memory._joined)):
        yield name, scratch._budget
    for target in node.targets:
        yield f"pieces of target {target.target_id}", target.engine.joined._budget


def _windows(peers: ConnectionPool) -> Iterator[str]:
    """What is in flight in a window are the calls that wait for their answers."""
    for live in peers._live:
        for address, connection in live.items():
            window, calls = connection._window, connection._pending.values()
            counted = (window.calls, window.waiting, window._bytes[0])
            unsent = sum(call.unsent is not None for call in calls)
            made = (len(calls) - unsent, unsent, sum(call.size for call in calls if call.unsent is None))
            if counted != made or connection.outstanding != len(calls):
                yield f"has a window to {address} with other calls than were made: {counted}, not {made} (I20)"


def _memory_of_meta(node: MetaNode) -> Iterator[str]:
    yield from _memory_of_server(node._server)
    chunks = node._context.chunks
    assert isinstance(chunks, ChunkClient), "they go to storage processes"
    yield from _changes(chunks)


def _memory_of_server(server: Server) -> Iterator[str]:
    if server.pool.lent_bytes:
        yield f"lends buffers of its server: {server.pool.lent_bytes} bytes (I14)"
    held = sum(session._inflight_bytes for session in server._connections)
    if held:
        yield f"counts payload in flight: {held} bytes (I20)"
    if server.held.bytes:
        yield f"counts answers that wait for a grant: {server.held.bytes} bytes (I20)"
    open_calls = [call for session in server._connections for call in session.calls.values()]
    for call in open_calls:
        if call.method not in _WAIT_FOR_NEWS:
            yield f"does not answer call {call.request_id}: {call.method} (I13)"
    requests = sum(call.counted_bytes for call in open_calls)
    if server.calls_bytes != requests:
        yield f"counts requests in flight: {server.calls_bytes} bytes, not {requests} (I20)"
    if server.queued.total_bytes:
        yield f"counts answers that wait for their peers: {server.queued.total_bytes} bytes (I20)"
    ended = sum(session.stream.closed for session in server._connections)
    if ended:
        yield f"keeps connections that have ended: {ended} (I20)"


def _unnamed_blobs(engine: ChunkEngine) -> Iterator[str]:
    """Blobs are those that records name. The blobs of a damaged record stay until it is replaced."""
    for chunk, record in engine.inventory(None, 1 << 20):
        numbers = {BlobKey.number_of(key) for key, _ in engine._store._table.scan(*range_of_blobs(chunk))}
        if record is not None and numbers != record.blobs.keys():
            yield f"has other blobs of {chunk} than its record names: {sorted(numbers)}, not {sorted(record.blobs)}"


def _space(engine: ChunkEngine, rotten_records: int) -> Iterator[str]:
    """Blocks that are in use are those that records name, each by one. The blocks of a record that could not be read
    any more are free only after the next start."""
    named = Counter[Block]()
    for _, record in engine.inventory(None, 1 << 20):
        if record is not None:
            blocks = {version.block for version in (record.committed, record.pending) if version is not None}
            named.update(block for block in blocks if block is not None)
    yield from _unnamed_blobs(engine)
    for block, count in named.items():
        if count > 1:
            yield f"has several records that name {block}: {count}"
    for bits, allocator in engine._files._allocators.items():
        used = allocator.used - allocator.freed
        names = sum(block.bits == bits for block in named)
        if not names <= used <= names + 2 * rotten_records:
            yield f"uses more blocks of {1 << bits} bytes than its records name: {used}, not {names}"
        if allocator._pins:
            yield f"has blocks of {1 << bits} bytes pinned: {allocator._pins}"
