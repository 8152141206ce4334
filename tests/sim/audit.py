"""What must be true of a cluster once it is at rest, looked at from outside."""

from threefs_storage.chain.resync import row_of
from threefs_storage.engine.chunk_record import Version
from threefs_storage.engine.overlay import BlobKey
from threefs_storage.target import Target

from tests.harness.simulated.content import Content
from tests.harness.simulated.version_bytes import assemble
from tests.sim.world import World
from threefs.checksums import crc32c
from threefs.ids import ChunkId

#: version, removed, length, checksum, content
State = tuple[int, bool, int, int, bytes]


def replicas(world: World) -> list[str]:
    """I4: all replicas of a chain hold the same, and nothing is pending. Read from the disks themselves."""
    found: list[str] = []
    routing = world.routing()
    assert routing is not None, "somebody is primary"
    for chain in routing.chains.values():
        states: dict[int, dict[ChunkId, State]] = {}
        for member in chain.members:
            target = _target(world, member.target_id)
            states[member.target_id] = contents(world, target)
            found += [f"I4: {chunk} is still pending at {member.target_id}" for chunk in target.engine.pending()]
        first, *others = states.items()
        for target_id, state in others:
            for chunk in sorted(set(state) | set(first[1])):
                if state.get(chunk) != first[1].get(chunk):
                    one, other = _shown(first[1].get(chunk)), _shown(state.get(chunk))
                    found.append(f"I4: {chunk} is {one} at {first[0]}, {other} at {target_id}")
    return found


def half_removed(world: World) -> list[str]:
    """A crash in the middle of the removal of a directory leaves nothing that keeps its room for ever."""
    return [
        f"{host} keeps {path}, whose removal had begun"
        for host in world.disks
        for path in world.disks[host].half_removed()
    ]


def members(world: World) -> list[str]:
    """Moves have left no chain with a target too many, or too few."""
    routing = world.routing()
    assert routing is not None, "somebody is primary"
    return [
        f"chain {chain.chain_id} has {len(chain.members)} members"
        for table_id, table in routing.tables.items()
        for chain in map(routing.chains.__getitem__, table)
        if len(chain.members) != routing.replicas[table_id] or chain.leaving is not None
    ]


def damage(world: World) -> list[str]:
    """Nothing is damaged any more, and no checksum fails."""
    found = []
    for host, node in world.storages.items():
        for target in node.targets:
            found += [f"{chunk} is still damaged at {target.target_id} of {host}" for chunk in target.damaged]
            found += [f"{chunk} is lost at {target.target_id} of {host}" for chunk in target.engine.lost_chunks]
    return found


def _target(world: World, target_id: int) -> Target:
    return next(node.targets.by_id[target_id] for node in world.storages.values() if target_id in node.targets.by_id)


def contents(world: World, target: Target) -> dict[ChunkId, State]:
    found = {}
    for chunk, record in target.engine.inventory(None, 1 << 20):
        assert record is not None, f"the record of {chunk} at {target.target_id} cannot be read"
        version = record.committed
        if version is not None:
            row = row_of(chunk, record)
            content = _bytes(target, chunk, version)
            assert crc32c(content) == version.checksum, f"{chunk} at {target.target_id} fails its checksum"
            found[chunk] = (row.version, version.removed, version.length, row.digest, content)
    return found


def _bytes(target: Target, chunk: ChunkId, version: Version) -> bytes:
    def of_block(begin: int, end: int) -> bytes:
        assert version.block is not None
        file = target.engine._files.file(version.block)
        content: Content = file.content  # type: ignore[attr-defined]
        return content.bytes_at((version.block.slot << version.block.bits) + begin, end - begin)

    table = target.engine._store._table
    return assemble(version, of_block, lambda number: table.get(BlobKey(chunk, number).encoded()) or b"")


def _shown(state: State | None) -> str:
    return "nothing" if state is None else f"version {state[0]} of {state[2]} bytes {state[4][:16]!r}"
