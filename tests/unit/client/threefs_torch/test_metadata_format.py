import json
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (make ml-venv)")
from threefs_torch import metadata_format  # noqa: E402
from threefs_torch.metadata_format import StoredItem  # noqa: E402
from torch.distributed.checkpoint.metadata import (  # noqa: E402
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)

from threefs.checksums import crc32c  # noqa: E402
from threefs.errors import Corrupt, InvalidArgument, NotSupported  # noqa: E402


def example() -> Metadata:
    return Metadata(
        state_dict_metadata={
            "model.w": TensorStorageMetadata(
                TensorProperties(torch.bfloat16, requires_grad=True),
                torch.Size([4, 6]),
                [
                    ChunkStorageMetadata(torch.Size([0, 0]), torch.Size([2, 6])),
                    ChunkStorageMetadata(torch.Size([2, 0]), torch.Size([2, 6])),
                ],
            ),
            "step\n\ud800": TensorStorageMetadata(
                TensorProperties(torch.int64), torch.Size([]), [ChunkStorageMetadata(torch.Size([]), torch.Size([]))]
            ),
            "groups.0.lr": BytesStorageMetadata(),
        },
        planner_data={"model.w": ("model", "w"), "step\n\ud800": ("step\n\ud800",), "groups.0.lr": ("groups", 0, "lr")},
        storage_data={
            MetadataIndex("model.w", [0, 0], 0): StoredItem("a.data", 0, 24, "bfloat16"),
            MetadataIndex("model.w", [2, 0]): StoredItem("b.data", 64, 24, "bfloat16"),
            MetadataIndex("step\n\ud800", []): StoredItem("a.data", 64, 8, "int64"),
            MetadataIndex("groups.0.lr"): StoredItem("a.data", 128, 300, ""),
        },
        storage_meta=StorageMeta("threefs://x:1/y", "abc", modules=["m"]),
        version="1.0.0",
    )


def changed(change: Any) -> bytes:
    """The example, with another payload and a checksum that agrees."""
    _, payload, _ = metadata_format.encode(example()).split(b"\n")
    fields = json.loads(payload)
    change(fields)
    return framed(json.dumps(fields).encode())


def framed(payload: bytes, **header: Any) -> bytes:
    fields = {"format": metadata_format.FORMAT, "version": 1, "bytes": len(payload), "crc32c": crc32c(payload)}
    return json.dumps(fields | header).encode() + b"\n" + payload + b"\n"


def test_metadata_come_back() -> None:
    content = metadata_format.encode(example())
    assert metadata_format.decode(content, "x") == example()
    (second,) = [
        index for index in metadata_format.decode(content, "x").storage_data if index.offset == torch.Size([0, 0])
    ]
    assert second.index == 0  # a hint, which does not count in comparisons
    nothing = Metadata({}, storage_data={})
    assert metadata_format.decode(metadata_format.encode(nothing), "x") == nothing


def test_no_damage_goes_unnoticed() -> None:
    content = metadata_format.encode(example())
    for at in range(len(content) - 1):
        damaged = bytearray(content)
        damaged[at] ^= 0x11
        try:
            found = metadata_format.decode(bytes(damaged), "x")
        except (Corrupt, NotSupported):
            continue
        assert found == example()  # spaces of the header
    for length in range(len(content) - 1):
        with pytest.raises(Corrupt):
            metadata_format.decode(content[:length], "x")


@pytest.mark.parametrize(
    ("content", "kind", "message"),
    [
        (b"\x80\x02ctorch.distributed", Corrupt, "is not the metadata of a threefs checkpoint"),
        (b"[" * 5000, Corrupt, "is not the metadata of a threefs checkpoint"),
        (framed(b"{}", format="else"), Corrupt, "has the format 'else'"),
        (framed(b"{}", version=2), NotSupported, "has format version 2; this program reads version 1"),
        (framed(b"{}", bytes=3), Corrupt, "has 2 of 3 bytes"),
        (framed(b"{}", crc32c=3), Corrupt, "does not match its checksum"),
        (framed(b"[" * 200_000), Corrupt, "is not valid"),
        (framed(b"{}"), Corrupt, "is not valid"),
    ],
)
def test_other_files_are_refused(content: bytes, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match="x") as failure:
        metadata_format.decode(content, "/a/x")
    assert message in str(failure.value)


def entry(fields: Any) -> Any:
    return fields["state"]["model.w"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: entry(f).update(dtype="quint8"), "no dtype"),
        (lambda f: entry(f).update(dtype="load"), "no dtype"),
        (lambda f: entry(f).update(size=[4, -6]), "not a whole number from 0"),
        (lambda f: entry(f).update(size=[4, 6.5]), "not a whole number"),
        (lambda f: entry(f).update(size=[1] * 65), "shape of at most 64 dimensions"),
        (lambda f: entry(f).update(size=[4]), "a piece of 2 dimensions of a tensor of 1"),
        (lambda f: entry(f).update(size=[3, 6]), "a piece at [2, 0] of [2, 6] in a tensor of [3, 6]"),
        (lambda f: entry(f).update(requires_grad="no"), "true or false"),
        (lambda f: entry(f)["chunks"].append([[1, 0], [1, 6]]), "a piece of 'model.w' is stored nowhere"),
        (lambda f: f["items"].pop(), "a piece of 'groups.0.lr' is stored nowhere"),
        (lambda f: f["items"][0].__setitem__(5, 23), "23 bytes for 12 numbers"),
        (lambda f: f["items"][0].__setitem__(6, "float32"), "24 bytes for 12 numbers of 'model.w' in float32"),
        (lambda f: f["items"][0].__setitem__(6, ""), "is stored as an object"),
        (lambda f: f["items"][3].__setitem__(6, "int8"), "is stored as int8"),
        (lambda f: f["items"][0].__setitem__(3, "../../etc/passwd"), "not the name of a file in the directory"),
        (lambda f: f["items"][0].__setitem__(3, ".."), "not the name of a file in the directory"),
        (lambda f: f["items"][0].__setitem__(4, -1), "not a whole number from 0"),
        (lambda f: f["paths"].update(a=["b", 1 << 40]), "not a place in a list"),
        (lambda f: f["paths"].update(a=[]), "not a path"),
        (lambda f: f["paths"].update(a=[True]), "not a path"),
        (lambda f: f.update(version=7), "is not text"),
        (lambda f: f.update(state=[]), "no attribute 'items'"),
        (lambda f: f.pop("items"), "KeyError('items')"),
    ],
)
def test_impossible_metadata_are_refused(change: Any, message: str) -> None:
    with pytest.raises(Corrupt, match="/a/x: the metadata is not valid") as failure:
        metadata_format.decode(changed(change), "/a/x")
    assert message in str(failure.value)


def test_what_only_a_pickle_could_hold_is_refused() -> None:
    found = example()
    found.planner_data = object()
    with pytest.raises(InvalidArgument, match="the planner keeps a object with the checkpoint"):
        metadata_format.encode(found)
    found.planner_data = {"a": (("tuple",),)}
    with pytest.raises(InvalidArgument, match="value 'a' stands under the key"):
        metadata_format.encode(found)
    found = example()
    found.state_dict_metadata["model.w"].properties.layout = torch.sparse_coo
    with pytest.raises(InvalidArgument, match=r"tensor 'model.w' has the layout"):
        metadata_format.encode(found)
