import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_checkpoint import index as indexes
from threefs_checkpoint.index import Derived, Index, StoredShard, Tensor
from threefs_checkpoint.slices import Slice, whole

from threefs.checksums import crc32c
from threefs.errors import Corrupt, InvalidArgument, NotSupported

TENSORS = {
    "w": Tensor(
        "w",
        "float32",
        (4, 8),
        (StoredShard(Slice((0, 0), (2, 8)), 0, 0, (1,)), StoredShard(Slice((2, 0), (2, 8)), 1, 64, (0xFFFFFFFF,))),
    ),
    "ü/\n": Tensor("ü/\n", "bfloat16", (), (StoredShard(whole(()), 1, 0, (3,)),)),
    "empty": Tensor("empty", "bool", (0, 9), ()),
}
INDEX = Index(7, 2, 123, 128, (64, 128), TENSORS, {"p": Derived("bfloat16", "w")}, {"epoch": 3})


def test_an_index_comes_back() -> None:
    content = indexes.encode(INDEX)
    assert content.startswith(b"threefs-checkpoint 2 ") and content.index(b"\n") < indexes.HEAD_BYTES
    assert indexes.decode(content, "x") == INDEX
    assert INDEX.nbytes == 4 * 8 * 4 + 2


def test_every_flipped_bit_is_noticed() -> None:
    content = indexes.encode(INDEX)
    for bit in range(8 * len(content)):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises((Corrupt, NotSupported)):
            indexes.decode(bytes(changed), "x")


def framed(described: Any, version: int = 2) -> bytes:
    content = json.dumps(described).encode()
    return b"threefs-checkpoint %d %08x %d\n" % (version, crc32c(content), len(content)) + content


def described(**changes: Any) -> dict[str, Any]:
    content = indexes.encode(INDEX)
    return {**json.loads(content[content.index(b"\n") :]), **changes}


def test_other_files_and_versions_are_named() -> None:
    with pytest.raises(Corrupt, match="/a/index is not the index"):
        indexes.decode(b"PK" * 30, "/a/index")
    with pytest.raises(NotSupported, match="version 9"):
        indexes.decode(framed(described(), 9), "/a/index")
    with pytest.raises(Corrupt, match="bytes"):
        indexes.decode(framed(described())[:-1], "/a/index")


def tensor(**changes: Any) -> dict[str, Any]:
    row = {"name": "w", "dtype": "int8", "shape": [64], "shards": [[[0], [64], 0, 0, "00000000"]]} | changes
    return {"tensors": [list(row.values())], "derived": []}


@pytest.mark.parametrize(
    "changes",
    [
        {"step": -1},
        {"step": True},
        {"step": 1 << 63},
        {"chunk_bytes": 100},
        {"chunk_bytes": 1 << 40},
        {"files": 5},
        {"files": [1.5]},
        {"tensors": 5},
        {"tensors": [5]},
        {"derived": [["p", "bfloat16", "nothing"]]},
        {"derived": [["w", "bfloat16", "w"]]},
        {"derived": [["p", "object", "w"]]},
        tensor(name=5),
        tensor(name=""),
        tensor(dtype="object"),
        tensor(dtype=["int8"]),
        tensor(shape=[-1]),
        tensor(shape=[1] * 33),
        tensor(shape=7),
        tensor(shape=[1 << 40, 1 << 40], shards=[]),
        tensor(shape=[0, 1 << 62], shards=[]),
        tensor(shape=[65]),
        tensor(shards=[]),
        tensor(shards=[[[0], [64], 5, 0, "00000000"]]),
        tensor(shards=[[[0], [64], 0, 64, "00000000"]]),
        tensor(shards=[[[0], [64], 0, 1, "00000000"]]),
        tensor(shards=[[[0], [64], 0, 0, ""]]),
        tensor(shards=[[[0], [64], 0, 0, "0000000g"]]),
        tensor(shards=[[[0], [64], 0, 0, "000"]]),
        tensor(shards=[[[0], [64], 0, 0, "00 00 00"]]),
        tensor(shards=[[[0], [64], 0, 0, " " * 8]]),
        tensor(shards=[[[0], [63], 0, 0, "00000000"]]),
        tensor(shards=[[[1], [64], 0, 0, "00000000"]]),
        tensor(shards=[[[0], [64], 0, 0, "00000000"]] * 2),
    ],
)
def test_an_index_that_makes_no_sense_is_refused(changes: dict[str, Any]) -> None:
    indexes.decode(framed(described()), "x")
    with pytest.raises(Corrupt):
        indexes.decode(framed(described(**changes)), "x")


def test_metadata_are_plain_values() -> None:
    with pytest.raises(InvalidArgument, match="JSON"):
        indexes.encode(Index(1, 1, 1, 64, (), {}, {}, {"a": object()}))


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(Corrupt):
        indexes.decode(content, "x")


@pytest.mark.parametrize("name", ["", "x" * 4097, 5, b"a"])
def test_names(name: object) -> None:
    with pytest.raises(InvalidArgument):
        indexes.check_name(name)
