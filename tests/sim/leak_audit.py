"""What a cluster at rest must not keep: work that has died, memory that is lent, space that nothing names."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

from threefs_client.context import ClientContext
from threefs_client.data.grants import Grants
from threefs_storage.engine.chunk_record import Block
from threefs_storage.engine.engine import ChunkEngine
from threefs_storage.engine.overlay import BlobKey, range_of_blobs
from threefs_storage.node import StorageNode

from tests.sim.world import World

_LOOKS = 40  # what is given back lazily is given back by then
_PAUSE_S = 0.04


async def kept(world: World, links: dict[str, ClientContext]) -> list[str]:
    """All that is not as it was before there was any load (I14, I19, I20). No call of a client may be under way. The
    scrubbers are stopped: what they hold just now is not kept."""
    dead = []
    for host, node in world.storages.items():
        dead += [f"I19: {task} of {host} has ended" for task in _dead(node)]
        await world.processes[host].start(node.storage.scrubber.stop())
    lasting = found(world, links)
    for _ in range(_LOOKS):
        if not lasting:
            break
        await asyncio.sleep(_PAUSE_S)
        now = {complaint.split(":")[0] for complaint in found(world, links)}
        lasting = [complaint for complaint in lasting if complaint.split(":")[0] in now]
    return dead + lasting


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
    for host, link in links.items():
        used = link.chunks._budget._used
        if used:
            complaints.append(f"I20: {host} counts {used} bytes of writes in flight, and nothing is under way")
        if link.grants is not None:
            complaints += [f"{host} {what}" for what in _grants(link.grants)]
        if link.chunks._locked:
            complaints.append(f"I13: {host} takes {sorted(link.chunks._locked)} for being changed")
    return complaints


def _grants(grants: Grants) -> Iterator[str]:
    budget = grants.budget
    if budget.bytes or budget.senders or budget.waiting:
        yield (
            f"counts answers that may come, and none is under way: {budget.bytes} bytes of {budget.senders} senders, "
            f"{budget.waiting} that wait (I20)"
        )
    if grants._held:
        yield f"keeps slots of its host that it does not use: {grants._held} (I20)"


def _dead(node: StorageNode) -> Iterator[str]:
    """Background work that should go on for as long as the process lives. The scrubbers have been stopped."""
    storage = node.storage
    owners: list[Any] = [
        node,
        node._registration,
        node._cluster,
        storage._target_recovery,
        storage._pending_recovery,
        storage._tombstone_collector,
        storage.fold_scheduler,
        storage.reachability,
    ]
    if node.targets.by_id:  # moves may have taken all of them
        owners.append(storage._repair)
    running = {
        f"pending recovery of target {target}": task for target, task in storage._pending_recovery._tasks.items()
    }
    running |= {task.get_name(): task for owner in owners for task in owner._background._tasks}
    yield from (f"all of {type(owner).__name__}" for owner in owners if not owner._background._tasks)
    yield from (name for name, task in running.items() if task.done())


def _memory(node: StorageNode) -> Iterator[str]:
    server = node._server
    if server.pool.lent_bytes:
        yield f"lends buffers of its server: {server.pool.lent_bytes} bytes (I14)"
    for target in node.targets:
        if target.engine._buffers.lent_bytes:
            yield f"lends buffers of target {target.target_id}: {target.engine._buffers.lent_bytes} bytes (I14)"
    held = sum(session._inflight_bytes for session in server._connections)
    if held:
        yield f"counts payload in flight: {held} bytes (I20)"
    if server.held.bytes:
        yield f"counts answers that wait for a grant: {server.held.bytes} bytes (I20)"
    if server.calls_bytes:
        yield f"counts requests in flight: {server.calls_bytes} bytes (I20)"
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
