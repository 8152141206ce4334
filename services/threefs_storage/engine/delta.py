"""A row of equal items as the part in which it differs from another row. Pure.

A small change of a chunk changes one checksum and one extent of hundreds. So the row is stored as how many items it
shares with the other one at its beginning and at its end, and the items between.
"""

import struct

_SHARED = struct.Struct("<HH")  # items at the beginning, items at the end


def encode_delta(base: bytes, row: bytes, item_bytes: int) -> bytes:
    """`row` by its difference from `base`; both are multiples of `item_bytes`."""
    most = min(len(base), len(row))
    first = _shared(base, row, most, item_bytes)
    last = _shared_end(base, row, most - first, item_bytes)
    return _SHARED.pack(first // item_bytes, last // item_bytes) + row[first : len(row) - last]


def decode_delta(base: bytes, body: bytes, at: int, row_bytes: int, item_bytes: int) -> tuple[bytes, int]:
    """The row of that length whose difference from `base` begins at `at`, and where it ends. Raises ValueError."""
    first, last = (items * item_bytes for items in _SHARED.unpack_from(body, at))
    at += _SHARED.size
    between = row_bytes - first - last
    if between < 0 or first + last > len(base) or at + between > len(body):
        raise ValueError(f"{first} and {last} bytes of a row of {len(base)} cannot be part of one of {row_bytes}")
    return base[:first] + body[at : at + between] + base[len(base) - last :], at + between


def _shared(one: bytes, other: bytes, most: int, item_bytes: int) -> int:
    """How many bytes of whole items both have at the beginning, at most `most`."""
    low, high = 0, most // item_bytes
    while low < high:
        middle = (low + high + 1) // 2
        if one[: middle * item_bytes] == other[: middle * item_bytes]:
            low = middle
        else:
            high = middle - 1
    return low * item_bytes


def _shared_end(one: bytes, other: bytes, most: int, item_bytes: int) -> int:
    """The same at the end."""
    low, high = 0, most // item_bytes
    while low < high:
        size = (low + high + 1) // 2 * item_bytes
        if one[len(one) - size :] == other[len(other) - size :]:
            low = size // item_bytes
        else:
            high = size // item_bytes - 1
    return low * item_bytes
