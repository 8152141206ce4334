"""The metadata of a distributed checkpoint of torch: what is tried, and examples. Needs torch."""

import json
import pickle

import torch
from threefs_torch import metadata_format, pickled_metadata
from threefs_torch.metadata_format import StoredItem
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)

from threefs.checksums import crc32c


def metadata(data: bytes) -> object:
    return metadata_format.decode(data, "metadata")


def resealed_metadata(data: bytes) -> object:
    """With a header that fits, so that what lies behind it is tried too."""
    payload = data.partition(b"\n")[2].rstrip(b"\n")
    header = {
        "format": metadata_format.FORMAT,
        "version": metadata_format.VERSION,
        "bytes": len(payload),
        "crc32c": crc32c(payload),
    }
    return metadata_format.decode(json.dumps(header).encode() + b"\n" + payload + b"\n", "metadata")


def of_torch(data: bytes) -> object:
    return pickled_metadata.decode(data, "metadata")


def example_of_torch(protocol: int) -> bytes:
    size = torch.Size([4, 2])
    whole = TensorStorageMetadata(
        TensorProperties(torch.bfloat16), size, [ChunkStorageMetadata(torch.Size([0, 0]), size)]
    )
    places = {MetadataIndex("w", torch.Size([0, 0])): _StorageInfo("__0_0.distcp", 0, 32)}
    described = Metadata({"w": whole, "step": BytesStorageMetadata()}, {"w": ("w",)}, places, StorageMeta("a", "b"))
    return pickle.dumps(described, protocol)


def example() -> bytes:
    size, half = torch.Size([4, 2]), torch.Size([2, 2])
    chunks = [ChunkStorageMetadata(torch.Size([first, 0]), half) for first in (0, 2)]
    items = {
        MetadataIndex("w", chunk.offsets, number): StoredItem("rank-0.data", 16 * number, 16, "float32")
        for number, chunk in enumerate(chunks)
    }
    return metadata_format.encode(
        Metadata(
            {"w": TensorStorageMetadata(TensorProperties(torch.float32), size, chunks), "step": BytesStorageMetadata()},
            {"w": ("model", "w"), "step": ("steps", 0)},
            {**items, MetadataIndex("step"): StoredItem("rank-0.data", 32, 5, "")},
            StorageMeta("threefs://h:1/a", "ab", modules=["m"]),
            "1.0.0",
        )
    )
