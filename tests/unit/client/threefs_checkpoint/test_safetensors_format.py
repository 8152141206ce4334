import json
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes
from threefs_checkpoint import safetensors_format as format
from threefs_checkpoint.safetensors_format import DTYPE_BITS, LENGTH_BYTES, Header, TensorInfo

from threefs.errors import Corrupt, InvalidArgument, NotSupported

NUMPY_DTYPES = [
    *("bool", "uint8", "int8", "int16", "uint16", "float16", "int32", "uint32", "float32", "complex64"),
    *("float64", "int64", "uint64"),
]


def file_of(header: str | bytes, data_bytes: int) -> tuple[bytes, int]:
    """The header of a file, and the length of the file."""
    content = header.encode() if isinstance(header, str) else header
    return content, LENGTH_BYTES + len(content) + data_bytes


def tensor(dtype: str, shape: list[Any], first: Any, end: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [first, end]}


def decoded(content: bytes) -> Header:
    """Of a file whose data are zeros, as many as its header says."""
    length = format.header_bytes(content, 1 << 40, "x")
    last = max((one["data_offsets"][1] for one in json.loads(content[LENGTH_BYTES:]).values()), default=0)
    return format.decode_header(content[LENGTH_BYTES:], LENGTH_BYTES + length + last, "x")


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8).filter(lambda name: name != format.METADATA),
        st.tuples(
            st.sampled_from(sorted(DTYPE_BITS)), array_shapes(min_dims=0, min_side=0).map(lambda shape: (*shape, 4))
        ),
        max_size=6,
    )
)
def test_a_header_comes_back(tensors: dict[str, tuple[str, tuple[int, ...]]]) -> None:
    content, header = format.encode_header(tensors)
    assert len(content) % 8 == 0
    assert decoded(content) == header
    assert {name: (info.dtype, info.shape) for name, info in header.tensors.items()} == tensors
    end = len(content)
    for info in header.tensors.values():
        assert info.offset == end and info.offset % max(1, DTYPE_BITS[info.dtype] // 8) == 0
        end += info.nbytes
    assert end == header.file_bytes


def test_files_are_those_of_the_library() -> None:
    library = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed (make ml-venv)")
    arrays = {f"{number} ü\n": np.full((2, number), 1, dtype) for number, dtype in enumerate(NUMPY_DTYPES)}
    whole = library.save(arrays, {"made": 'with "quotes" and ü'})
    content, header = format.encode_header(
        {name: (format.dtype_name(name, array.dtype), array.shape) for name, array in arrays.items()},
        {"made": 'with "quotes" and ü'},
    )
    assert whole[: len(content)] == content and len(whole) == header.file_bytes
    for name, info in header.tensors.items():
        found = np.frombuffer(whole, format.numpy_dtype(info.dtype), info.nbytes // arrays[name].itemsize, info.offset)
        assert np.array_equal(found.reshape(info.shape), arrays[name])


def test_numpy_types_and_names_belong_together() -> None:
    for dtype in NUMPY_DTYPES:
        assert format.numpy_dtype(format.dtype_name("a", np.dtype(dtype))) == np.dtype(dtype)
    for dtype in (">f4", "complex128", "object", "U3", "float128"):
        with pytest.raises(InvalidArgument, match="tensor 'a' has the type"):
            format.dtype_name("a", np.dtype(dtype))
    with pytest.raises(NotSupported, match="numpy has no type for F4"):
        format.numpy_dtype("F4")


def test_types_of_ml_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed (make ml-venv)")
    assert format.numpy_dtype("BF16") == np.dtype(ml_dtypes.bfloat16)
    for dtype in ("BF16", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"):
        made = format.numpy_dtype(dtype)
        assert format.dtype_name("a", made) == dtype and made.itemsize * 8 == DTYPE_BITS[dtype]


def test_a_header_may_have_any_order_and_no_padding() -> None:
    fields = {
        "__metadata__": {"k": "{["},
        "b": tensor("U8", [3], 2, 5),
        "a": tensor("I16", [], 0, 2),
        "e": tensor("F32", [0, 7], 5, 5),
    }
    content, length = file_of(json.dumps(fields, indent=1), 5)
    header = format.decode_header(content, length, "x")
    begin = LENGTH_BYTES + len(content)
    assert header == Header(
        {
            "a": TensorInfo("I16", (), begin),
            "b": TensorInfo("U8", (3,), begin + 2),
            "e": TensorInfo("F32", (0, 7), begin + 5),
        },
        {"k": "{["},
        length,
    )
    assert list(header.tensors) == ["a", "b", "e"]


ONE = tensor("F32", [2], 0, 8)


@pytest.mark.parametrize(
    ("fields", "data_bytes", "message"),
    [
        ({"a": ONE}, 7, "end at byte 8 of 7"),
        ({"a": ONE}, 9, "end at byte 8 of 9"),
        ({}, 1, "end at byte 0 of 1"),
        ({"a": ONE, "b": tensor("U8", [2], 9, 11)}, 11, "'b' begins at 9, not at 8: it leaves a hole"),
        ({"a": tensor("U8", [2], 1, 3)}, 3, "'a' begins at 1, not at 0: it leaves a hole"),
        ({"a": ONE, "b": tensor("U8", [2], 7, 9)}, 9, "'b' begins at 7, not at 8: it overlaps"),
        ({"a": ONE, "b": ONE}, 8, "begins at 0, not at 8: it overlaps"),
        ({"a": tensor("F32", [3], 0, 8)}, 8, "takes 12 bytes, not 0 to 8"),
        ({"a": tensor("F64", [2], 0, 8)}, 8, "takes 16 bytes, not 0 to 8"),
        ({"a": tensor("F32", [2], 8, 0)}, 8, "takes 8 bytes, not 8 to 0"),
        ({"a": tensor("F4", [3], 0, 1)}, 1, "3 numbers of 4 bits are not whole bytes"),
        ({"a": tensor("F32", [-2], 0, 8)}, 8, "not between 0 and"),
        ({"a": tensor("F32", [True, 2], 0, 8)}, 8, "not between 0 and"),
        ({"a": tensor("F32", ["2"], 0, 8)}, 8, "not between 0 and"),
        ({"a": tensor("F32", [1 << 62], 0, 1 << 62)}, 8, "not between 0 and"),
        ({"a": tensor("F32", [1 << 40, 1 << 40, 0], 0, 0)}, 0, "is larger than"),
        ({"a": tensor("F32", [1] * 33, 0, 4)}, 4, "33 dimensions; there are at most 32"),
        ({"a": {"dtype": "F32", "shape": [2]}}, 8, "needs dtype, shape and data_offsets"),
        ({"a": {**ONE, "extra": 1}}, 8, "and nothing else"),
        ({"a": [1, 2]}, 8, "needs dtype, shape and data_offsets"),
        ({"a": {**ONE, "shape": 2}}, 8, "are lists"),
        ({"a": {**ONE, "data_offsets": [0, 8, 8]}}, 8, "of two numbers"),
        ({"__metadata__": {"k": 1}}, 0, "does not map text to text"),
        ({"__metadata__": []}, 0, "does not map text to text"),
        ({"\ud800": ONE}, 8, "surrogates not allowed"),
    ],
)
def test_wrong_headers_are_refused_in_words(fields: Any, data_bytes: int, message: str) -> None:
    content, length = file_of(json.dumps(fields), data_bytes)
    with pytest.raises(Corrupt, match="/m/x: the header is not valid: ") as failure:
        format.decode_header(content, length, "/m/x")
    assert message in str(failure.value)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("", "begins with b''"),
        (" {}", "begins with b' '"),
        ("[]", "begins with b'['"),
        ("{", "Expecting property name"),
        ("{}{}", "Extra data"),
        (b'{"\xff": {}}', "can't decode"),
        ('{"a": {"dtype": "U8", "shape": [2.0], "data_offsets": [0, 2]}}', "2.0 is not a whole number"),
        ('{"a": {"dtype": "U8", "shape": [NaN], "data_offsets": [0, 2]}}', "NaN is not a whole number"),
        ('{"a": {"dtype": "U8", "shape": [' + "9" * 5000 + '], "data_offsets": [0, 2]}}', "digits"),
        ('{"a": 1, "b": 2, "a": 3}', "'a' stands there twice"),
        ('{"a": {"dtype": "U8", "dtype": "U8"}}', "'dtype' stands there twice"),
        ('{"a": {"dtype": "U8", "shape": [[]]}}', "nested more than 3 levels"),
        ("{" + '"a":[' * 200_000, "nested more than 3 levels"),
        ("{" + '"a' * 200_000, "Expecting"),
        ('{"' + '\\"' * 200_000, "Unterminated string"),
        ('{"a":{' + "[]," * (4 << 20), "has more than 1048576 tensors"),
    ],
)
@pytest.mark.slow
def test_headers_that_are_no_json_of_this_form_are_refused(header: str | bytes, message: str) -> None:
    content, length = file_of(header, 2)
    with pytest.raises(Corrupt, match="the header is not valid") as failure:
        format.decode_header(content, length, "x")
    assert message in str(failure.value) and len(str(failure.value)) < 1000


def test_an_unknown_dtype_is_named() -> None:
    content, length = file_of(json.dumps({"a": tensor("F7", [1], 0, 1)}), 1)
    with pytest.raises(NotSupported, match="/m/x: tensor 'a' has the dtype 'F7'; known are BOOL"):
        format.decode_header(content, length, "/m/x")


def test_lengths_of_headers_are_bounded() -> None:
    assert format.header_bytes(struct.pack("<Q", 100), 108, "x") == 100
    for start, file_bytes, message in [
        (b"", 0, "has 0 bytes, so it is not a safetensors file"),
        (b"1234567", 7, "has 7 bytes"),
        (struct.pack("<Q", 101), 108, "a header of 101 bytes in a file of 108"),
        (struct.pack("<Q", 100_000_001), 1 << 40, "it has at most 100000000"),
        (b"PK\x03\x04\x14\0\0\0", 1 << 40, "it has at most 100000000"),
    ]:
        with pytest.raises(Corrupt, match=message):
            format.header_bytes(start, file_bytes, "x")


@pytest.mark.parametrize(
    ("tensors", "metadata", "message"),
    [
        ({"__metadata__": ("U8", (1,))}, {}, "cannot be called '__metadata__'"),
        ({"\ud800": ("U8", (1,))}, {}, "not valid Unicode"),
        ({"a": ("U8", (1,))}, {"k": 1}, "map text to text"),
        ({"a": ("F4", (1,))}, {}, "tensor 'a': 1 numbers of 4 bits are not whole bytes"),
        ({"a": ("U8", (1 << 51,))}, {}, "is larger than"),
        ({"a" * 100_000_001: ("U8", (1,))}, {}, "write several files"),
    ],
)
def test_what_cannot_be_written_is_refused(tensors: Any, metadata: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        format.encode_header(tensors, metadata)


@given(st.data())
def test_damaged_headers_are_refused_or_describe_the_file(data: st.DataObject) -> None:
    """Whatever bytes change: no other error, and no tensor beyond the file."""
    content, header = format.encode_header({"a": ("F32", (2, 3)), "b": ("U8", (5,))}, {"k": "v"})
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.sampled_from(b'{}[]",:0123456789 aU\xff\0'))
    try:
        length = format.header_bytes(bytes(changed), header.file_bytes, "x")
        found = format.decode_header(bytes(changed[LENGTH_BYTES : LENGTH_BYTES + length]), header.file_bytes, "x")
    except (Corrupt, NotSupported):
        return
    extents = sorted((info.offset, info.offset + info.nbytes) for info in found.tensors.values())
    assert [end for _, end in extents][-1:] == [header.file_bytes]
    assert sum(end - first for first, end in extents) == header.file_bytes - LENGTH_BYTES - length
