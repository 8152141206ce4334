"""Many changes in one call, and what they leave behind."""

from threefs_meta.batch.batch_transaction import run_batch
from threefs_meta.store import keys

from tests.harness.meta_harness import CLIENT, SESSION, MetaBench, at
from threefs.kv import records
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import DirectoryTimes


def create_of(path: str, **options: object) -> pb.Change:
    return pb.Change(create=pb.CreateRequest(place=at(path), mode=0o644, **options))  # type: ignore[arg-type]


def remove_of(path: str, **options: object) -> pb.Change:
    return pb.Change(remove=pb.RemoveRequest(place=at(path), **options))  # type: ignore[arg-type]


def rename_of(
    source: str, destination: str, *, no_replace: bool = False, exchange: bool = False, whiteout: bool = False
) -> pb.Change:
    request = pb.RenameRequest(source=at(source), destination=at(destination), no_replace=no_replace)
    request.exchange, request.whiteout = exchange, whiteout
    return pb.Change(rename=request)


def publish_of(inode: pb.Inode, path: str, length: int = 0) -> pb.Change:
    return pb.Change(
        publish=pb.PublishRequest(inode=inode.inode, session=SESSION, place=at(path), mode=0o644, length=length)
    )


async def answered(fs: MetaBench, request: pb.BatchRequest) -> pb.BatchReply:
    return (await run_batch(fs.context, request)).parsed()


async def changed(fs: MetaBench, *changes: pb.Change, mutation: pb.Mutation | None = None) -> list[int]:
    """Codes."""
    fs._request += len(changes)
    identity = mutation or pb.Mutation(client=CLIENT, request=fs._request - len(changes) + 1)
    request = pb.BatchRequest(mutation=identity, changes=changes, caller=fs.caller)
    return [result.code for result in (await answered(fs, request)).results]


async def stored(fs: MetaBench) -> list[tuple[bytes, bytes]]:
    """All but the records of what was done, and what is drawn."""
    pairs = await fs.engine.begin().get_range(b"", b"\xff")
    return sorted((_undrawn(key), _fixed(key, value)) for key, value in pairs if not key.startswith(b"IDEM"))


def _undrawn(key: bytes) -> bytes:
    """The key of a change of usage ends with a token."""
    return key[: len(keys.delta(0, b""))] if key.startswith(keys.DELTAS[0]) else key


def _fixed(key: bytes, value: bytes) -> bytes:
    if key.startswith(b"INOD"):
        inode = records.decode(value, pb.Inode, key)
        inode.layout.ClearField("table_offset")
        inode.layout.ClearField("seed")
        return inode.SerializeToString()
    if not key.startswith(b"TIME") or keys.is_subdirectory(key):
        return value
    times = records.decode(value, DirectoryTimes, key)
    assert times.token
    times.ClearField("token")
    return times.SerializeToString()
