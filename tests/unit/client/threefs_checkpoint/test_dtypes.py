import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_checkpoint.dtypes import ELEMENT_TYPES, bytes_of, carried, element_type, is_finite, rounded

from threefs.errors import InvalidArgument, NotSupported


def test_the_type_of_an_array_is_its_own_unless_another_is_named() -> None:
    assert element_type("a", np.zeros(3, np.float32)).name == "float32"
    assert element_type("a", np.zeros(3, np.uint16), "bfloat16").name == "bfloat16"
    assert element_type("a", np.zeros(3, "V1"), "float8_e5m2").itemsize == 1
    assert carried(np.zeros(3, "V1"), ELEMENT_TYPES["float8_e5m2"]).dtype == np.uint8


@pytest.mark.parametrize("kind", ["O", "U3", ">f4", "M8[s]", [("a", "f4")]])
def test_what_is_no_plain_number_is_refused(kind: object) -> None:
    with pytest.raises(InvalidArgument, match="tensor 'a'"):
        element_type("a", np.zeros(3, kind))  # type: ignore[call-overload]


@pytest.mark.parametrize(("own", "named"), [("f4", "bfloat16"), ("u2", "float16"), ("u1", "bfloat16"), ("f4", "x")])
def test_an_array_that_does_not_carry_the_type_is_refused(own: str, named: str) -> None:
    with pytest.raises(InvalidArgument, match="tensor 'a'"):
        element_type("a", np.zeros(3, own), named)


@pytest.mark.parametrize("value", [3.0, [1.0, 2.0], object()])
def test_what_is_no_array_is_refused_in_words_that_say_how_to_make_one(value: object) -> None:
    with pytest.raises(InvalidArgument, match=r"tensor 'a' is a .*\.numpy\(\) makes one of"):
        element_type("a", value)  # type: ignore[arg-type]


def bfloat16_of(value: float) -> int:
    """By exact arithmetic: the nearer of the two neighbours, the even one of two that are equally near."""
    bits = int.from_bytes(struct.pack("<f", value), "little")
    low, rest = bits >> 16, bits & 0xFFFF
    return low + 1 if rest > 0x8000 or (rest == 0x8000 and low & 1) else low


@given(st.lists(st.floats(width=32, allow_nan=False)))
def test_values_are_rounded_to_bfloat16_as_training_rounds_them(values: list[float]) -> None:
    array = np.array(values, np.float32)
    found = rounded(array, ELEMENT_TYPES["float32"], ELEMENT_TYPES["bfloat16"])
    assert found.dtype == np.uint16 and found.tolist() == [bfloat16_of(value) for value in values]


def test_what_is_not_a_number_stays_so() -> None:
    nan = np.array([0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32)
    found = rounded(nan, ELEMENT_TYPES["float32"], ELEMENT_TYPES["bfloat16"])
    assert np.isnan((found.astype(np.uint32) << 16).view(np.float32)).all()
    assert np.isinf(rounded(np.array([1e9], np.float32), ELEMENT_TYPES["float32"], ELEMENT_TYPES["float16"]))
    with pytest.raises(NotSupported, match="float32 are not converted to int8"):
        rounded(nan, ELEMENT_TYPES["float32"], ELEMENT_TYPES["int8"])


def test_bytes_of_any_shape() -> None:
    assert bytes(bytes_of(np.array(7, np.uint16))) == b"\7\0"
    assert bytes(bytes_of(np.empty((0, 3)))) == b""


def test_every_value_of_bfloat16_is_finite_or_not_as_a_float_is() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    values = (bits.astype(np.uint32) << 16).view(np.float32)
    found = [is_finite(bits[number : number + 1], ELEMENT_TYPES["bfloat16"]) for number in range(0, 1 << 16, 7)]
    assert found == np.isfinite(values[::7]).tolist()
    assert is_finite(np.array(3), ELEMENT_TYPES["int64"]) and not is_finite(np.array(np.inf), ELEMENT_TYPES["float64"])


@pytest.mark.parametrize("name", [name for name in ELEMENT_TYPES if name.startswith("float8")])
def test_every_value_of_8_bits_is_finite_or_not_as_its_library_says(name: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    bits = np.arange(256, dtype=np.uint8)
    found = [is_finite(bits[number : number + 1], ELEMENT_TYPES[name]) for number in range(256)]
    assert found == np.isfinite(bits.view(getattr(ml_dtypes, name))).tolist()
