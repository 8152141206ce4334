"""Every decoder of bytes from outside: what is tried, and good examples of it.

A decoder may answer, or raise an error of the one tree; anything else is a finding.
"""

import contextlib
import dataclasses
import importlib.util
import io
import struct
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from google.protobuf.message import DecodeError
from threefs_checkpoint import index as checkpoint_index
from threefs_checkpoint import safetensors_file, safetensors_format, single_file
from threefs_checkpoint.index import Derived, StoredShard, Tensor
from threefs_checkpoint.slices import whole
from threefs_data import format as data_format
from threefs_data.format import Shard
from threefs_data.interchange import mds, megatron, webdataset
from threefs_data.interchange.exchange_directory import Directory
from threefs_data.token_format import TokenFormat
from threefs_fuse import dispatch, protocol
from threefs_fuse.requests import Malformed
from threefs_manager.settings import Settings
from threefs_meta.resolve import paths
from threefs_meta.store import entry_codec
from threefs_storage.engine import chunk_record as chunk_records
from threefs_storage.engine import exactly_once as chunk_once
from threefs_storage.engine.overlay import Overlay

from tests.harness import single_file_checkpoint
from tests.harness.checkpoint_files import CheckpointFiles
from tests.harness.local_files import LocalFiles
from threefs import routing, settings
from threefs.checksums import crc32c
from threefs.cluster.registration import read_cluster_id
from threefs.errors import ThreefsError
from threefs.ids import ChunkId, WriteIdentity
from threefs.kv import dump, records, wal_recovery
from threefs.rpc import frames, handshake, methods
from threefs.rpc.limits import Limits
from threefs.rpc.methods import Method
from threefs.wire import common_pb2, manager_pb2, meta_pb2, storage_pb2

_CHUNK = ChunkId(7, 0)
_DIRECTORY = Path(tempfile.gettempdir())


@dataclass(frozen=True, slots=True)
class Decoder:
    decode: Callable[[bytes], object]
    examples: Sequence[bytes]

    def try_one(self, data: bytes) -> None:
        """Raises what no decoder may raise."""
        with contextlib.suppress(ThreefsError, DecodeError):
            self.decode(data)


ALL_METHODS: list[Method] = [found for found in vars(methods).values() if isinstance(found, Method)]  # type: ignore[type-arg]

HELLO = common_pb2.Hello(protocol=frames.PROTOCOL, cluster_id="", client_id="ab" * 16, program="fuzz")
ROUTING = manager_pb2.Routing(
    version=3,
    cluster_id="cd" * 16,
    nodes=[manager_pb2.Node(node_id=1, kind=manager_pb2.STORAGE, domain="a", address="h:1", incarnation=5)],
    targets=[manager_pb2.Target(target_id=101, node_id=1, chain_id=1, store_id=9)],
    chains=[
        manager_pb2.Chain(
            chain_id=1, version=2, members=[manager_pb2.ChainMember(target_id=101, state=manager_pb2.SERVING)]
        )
    ],
    tables=[manager_pb2.ChainTable(table_id=1, chains=[1])],
)


def _record() -> bytes:
    version = chunk_records.Version(
        5, 2, 10_000, 77, chunk_records.Block(16, 3), 4096, b"abcdabcdabcd", False, WriteIdentity(b"c" * 16, 1, 9)
    )
    overlaid = dataclasses.replace(version, overlay=Overlay(_CHUNK, 9000).written(50, 100, 1).written(9500, 30, 2))
    entry = chunk_once.OnceEntry(b"c" * 16, 1, 9, 5, 10_000, 77)
    return chunk_records.encode(_CHUNK, chunk_records.Record(version, overlaid, (entry, entry), (entry,)))


def _resealed_record(body: bytes) -> object:
    """With a checksum that fits, so that what lies behind it is tried too."""
    data = body[:-4]
    return chunk_records.decode(_CHUNK, data + struct.pack("<I", crc32c(_CHUNK.key() + data)))


def _resealed_value(data: bytes) -> object:
    return records.decode(records.encode_body(data[5:]), meta_pb2.Inode, b"INOD|key")


def _resealed_entry(data: bytes) -> object:
    return entry_codec.decode(records.encode_body(data[5:]), b"DENT|key")


def _fuse_request(data: bytes) -> object:
    """The first byte says which of the operations. What is too short is a struct.error, which the session expects."""
    numbered = list(_FUSE.values())
    with contextlib.suppress(Malformed, struct.error):
        return numbered[data[0] % len(numbered)].decode(memoryview(data)[1:]) if data else None
    return None


def _dump() -> bytes:
    out = io.BytesIO()
    writer = dump.Writer(out)
    for number in range(20):
        writer.put((b"INOD%d" % number, _INODE))
    writer.end()
    return out.getvalue()


def _file(read: Callable[[Path], object]) -> Callable[[bytes], object]:
    def decode(data: bytes) -> object:
        with tempfile.NamedTemporaryFile(dir=_DIRECTORY) as file:
            file.write(data)
            file.flush()
            return read(Path(file.name))

    return decode


def _index(data: bytes) -> object:
    """The index of a dataset, once as it is, once with checksums that fit."""
    with contextlib.suppress(ThreefsError):
        data_format.decode_index(data, "index")
    size = data_format.INDEX_HEADER_BYTES
    if len(data) < size:
        return None
    head, rows = bytearray(data[: size - 4]), data[size:]
    head[-4:] = struct.pack("<I", crc32c(rows))
    return data_format.decode_index(bytes(head) + struct.pack("<I", crc32c(bytes(head))) + rows, "index")


def _foreign(name: str, data: bytes, read: Callable[[Directory], object]) -> object:
    """A file of another program's dataset, in a directory with examples of the other ones."""
    with tempfile.TemporaryDirectory() as path:
        directory = Directory(LocalFiles(path), path)
        _write_foreign(directory)
        with directory.create(name) as file:
            file.write(data)
        return read(directory)


def _write_foreign(directory: Directory) -> None:
    arrays = [np.arange(count, dtype=np.uint16) for count in (3, 1, 40)]
    megatron.write(directory, arrays, "uint16")
    mds.write(directory, arrays, mds.Column("tokens", "uint16"), 1 << 20)
    webdataset.write(directory, [b"one", b"", b"three" * 200], "bin", 1 << 20)


def _foreign_example(name: str) -> bytes:
    with tempfile.TemporaryDirectory() as path:
        directory = Directory(LocalFiles(path), path)
        _write_foreign(directory)
        with directory.open(name) as file:
            return file.read()


def _foreign_decoder(name: str, read: Callable[[Directory], object]) -> Decoder:
    return Decoder(lambda data: _foreign(name, data, read), [_foreign_example(name)])


def _single_file_index(data: bytes) -> object:
    header = single_file.Header(1 << 20, 1 << 20, len(data), crc32c(data))
    return single_file.decode_index(data, header, "checkpoint")


_CHECKPOINT = checkpoint_index.Index(
    7,
    1,
    0,
    1 << 20,
    (48,),
    {"w": Tensor("w", "float32", (3, 4), (StoredShard(whole((3, 4)), 0, 0, (5,)),))},
    {"p": Derived("bfloat16", "w")},
    {"epoch": 1},
)


def _checkpoint_index(data: bytes) -> object:
    """The JSON, behind a first line that fits it."""
    line = b"threefs-checkpoint %d %08x %d\n" % (checkpoint_index.VERSION, crc32c(data), len(data))
    return checkpoint_index.decode(line + data, "checkpoint")


def _safetensors(data: bytes) -> object:
    """The whole way: header, and every tensor that it names."""
    with tempfile.TemporaryDirectory() as path:
        (Path(path) / "a").write_bytes(data)
        return safetensors_file.load_file(CheckpointFiles(path), "/a")


def _safetensors_header(data: bytes) -> object:
    """With the length that it says, so that only what lies behind that is tried."""
    return safetensors_format.decode_header(data, len(data) + 8 + 24, "file")


_TENSORS, _ = safetensors_format.encode_header({"w": ("F32", (2, 2)), "b": ("BF16", (4,))}, {"step": "7"})

_FUSE = dispatch.negotiated_operations(protocol.Feature.SETXATTR_EXT)
_INODE = records.encode(meta_pb2.Inode(inode=5, mode=0o644, length=9, nlink=1, name=b"x", parent=1))

DECODERS: dict[str, Decoder] = {
    "frame": Decoder(
        lambda data: frames.decode(memoryview(data), 0, Limits()) if len(data) >= frames.HEADER_BYTES else None,
        [frames.encode(kind, 301, 0, 5, b"0123456789", 20, 1000, 7) for kind in (1, 2, 3, 4, 5, 8)],
    ),
    "hello": Decoder(handshake.read, [HELLO.SerializeToString()]),
    "error": Decoder(frames.error_from, [common_pb2.Error(code=30, message="no").SerializeToString()]),
    "routing": Decoder(
        lambda data: routing.from_wire(manager_pb2.Routing.FromString(data)), [ROUTING.SerializeToString()]
    ),
    "chunk-record": Decoder(lambda data: chunk_records.decode(_CHUNK, data), [_record()]),
    "chunk-record-resealed": Decoder(_resealed_record, [_record()]),
    "kv-record": Decoder(lambda data: records.decode(data, meta_pb2.Inode, b"INOD|key"), [_INODE]),
    "kv-record-resealed": Decoder(_resealed_value, [_INODE]),
    "entry": Decoder(_resealed_entry, [entry_codec.encode(entry_codec.Entry(5, meta_pb2.FILE))]),
    "fuse-request": Decoder(_fuse_request, [bytes([number]) + bytes(88) + b"name\0" for number in range(len(_FUSE))]),
    "dump": Decoder(lambda data: list(dump.read(io.BytesIO(data))), [_dump()]),
    "wal": Decoder(
        lambda data: (wal_recovery.torn_at(data), wal_recovery.odd_header(data)),
        [bytes(100), struct.pack("<IHB", 1, 20, 1) + bytes(20)],
    ),
    "settings": Decoder(
        _file(lambda path: settings.load(Settings, path)), [b'data_dir = "/d"\nport = 7000\nlease_s = 2.5\n']
    ),
    "cluster-id": Decoder(_file(read_cluster_id), [b"ab" * 16 + b"\n"]),
    "dataset": Decoder(
        _index,
        [data_format.encode_index([Shard(3, 5000, 0, True, 7), Shard(2, 4112, 8, False, 7)])],
    ),
    "tokens": Decoder(lambda data: TokenFormat.decode(data, "tokens.json"), [TokenFormat("uint16", 64, True).encode()]),
    "megatron": _foreign_decoder("tokens.idx", lambda found: sum(map(len, megatron.read(found, "tokens")))),
    "mds-index": _foreign_decoder("index.json", lambda found: sum(map(len, mds.read(found, "tokens")))),
    "mds-shard": _foreign_decoder("shard.00000.mds", lambda found: sum(map(len, mds.read(found, "tokens")))),
    "webdataset": _foreign_decoder("shard-000000.tar", lambda found: sum(map(len, webdataset.read(found, "bin")))),
    "checkpoint-file": Decoder(
        lambda data: single_file.decode_header(data, "checkpoint"),
        [single_file_checkpoint.encode_header(single_file.Header(1 << 20, 1 << 21, 100, 7))],
    ),
    "checkpoint-file-index": Decoder(
        _single_file_index,
        [single_file_checkpoint.encode_index([single_file.ArrayInfo("w", "float32", (3, 4), 64, 5)])],
    ),
    "checkpoint": Decoder(
        lambda data: checkpoint_index.decode(data, "checkpoint"), [checkpoint_index.encode(_CHECKPOINT)]
    ),
    "checkpoint-index": Decoder(_checkpoint_index, [checkpoint_index.encode(_CHECKPOINT).partition(b"\n")[2]]),
    "safetensors": Decoder(_safetensors, [_TENSORS + bytes(24)]),
    "safetensors-header": Decoder(_safetensors_header, [_TENSORS[8:]]),
    "path": Decoder(lambda data: paths.split(data), [b"/a/b/c", b"/", b"/" + b"x" * 300]),
    "write-request": Decoder(
        storage_pb2.WriteRequest.FromString,
        [storage_pb2.WriteRequest(writes=[storage_pb2.ChunkWrite(target=101)]).SerializeToString()],
    ),
}

if importlib.util.find_spec("torch") is not None:  # `make ml-venv`
    from tests.fuzz import torch_decoders

    DECODERS |= {
        "torch-metadata": Decoder(torch_decoders.metadata, [torch_decoders.example()]),
        "torch-metadata-resealed": Decoder(torch_decoders.resealed_metadata, [torch_decoders.example()]),
        "torch-metadata-pickled": Decoder(
            torch_decoders.of_torch, [torch_decoders.example_of_torch(protocol) for protocol in range(3, 6)]
        ),
    }
