"""The rows of a request: the messages and texts of its repeated fields, at any depth; and the numbers in its columns,
which are its repeated fields of numbers. They are counted before it is parsed, because each takes more memory then than
on the wire.

`most_rows` costs nothing, but also counts bytes of numbers and texts that look like the begin of a row. Where it finds
too many, `count_fields` looks at each field.
"""

import functools

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5  # wire types
_LENGTH_DELIMITED_TYPES = (FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)
_MOST_VARINT_BITS = 70
_LAST_BYTES = bytes(range(0x80))  # of numbers of any length


def row_tags(request: type[Message]) -> bytes:
    """The bytes with which a row may begin.

    A tag is a varint of the number of the field and its wire type, which may be longer than it has to be.
    """
    found: set[int] = set()
    for message in _tree(_descriptor(request)):
        for field in message.fields:
            if field.is_repeated and not _is_number(field):
                tag = field.number << 3 | _LENGTH_DELIMITED
                found.add(tag & 0x7F | 0x80)
                if tag < 0x80:
                    found.add(tag)
    return bytes(sorted(found))


def _descriptor(request: type[Message]) -> Descriptor:
    found = request.DESCRIPTOR
    assert isinstance(found, Descriptor), "descriptors of the library in C count as such too"
    return found


def has_columns(request: type[Message]) -> bool:
    return any(
        field.is_repeated and _is_number(field) for message in _tree(_descriptor(request)) for field in message.fields
    )


def _is_number(field: FieldDescriptor) -> bool:
    return field.type not in _LENGTH_DELIMITED_TYPES


def _tree(top: Descriptor) -> list[Descriptor]:
    """The message and all messages within it, once each."""
    found = [top]
    for message in found:
        found += [inner for inner in _messages(message).values() if inner not in found]
    return found


def most_numbers(body: bytes) -> int:
    """The bytes with which numbers in a column may end, which are at least as many as the numbers. One of 4 or 8 bytes
    on the wire takes no more when it is parsed."""
    return len(body) - len(body.translate(None, _LAST_BYTES))


def most_rows(body: bytes, tags: bytes) -> int:
    """The number of bytes that are such tags, which is at least that of the rows."""
    return len(body) - len(body.translate(None, tags))


def count_fields(request: type[Message], body: bytes, most: int) -> int | None:
    """The number of fields, at any depth, which is at least that of the rows: a column of packed numbers is one field.
    None: there are more than `most`, or the body is no such message."""
    fields = 0
    spans = [(_descriptor(request), 0, len(body))]  # messages within the body that are still to be looked at
    try:
        while spans:
            owner, place, end = spans.pop()
            inner = _messages(owner)
            while place < end:
                fields += 1
                if fields > most:
                    return None
                tag, place = _varint(body, place)
                size, place = _size(tag & 7, body, place)
                if tag in inner:
                    spans.append((inner[tag], place, place + size))
                place += size
            if place != end:
                return None
    except (IndexError, ValueError):
        return None
    return fields


@functools.cache
def _messages(message: Descriptor) -> dict[int, Descriptor]:
    """The types of the messages in this one, by their tags."""
    found = ((field.number, field.message_type) for field in message.fields)
    return {number << 3 | _LENGTH_DELIMITED: inner for number, inner in found if inner is not None}


def _size(wire_type: int, body: bytes, place: int) -> tuple[int, int]:
    """How long the value of a field is, and where it begins. Raises ValueError."""
    if wire_type == _VARINT:
        return 0, _varint(body, place)[1]
    if wire_type == _LENGTH_DELIMITED:
        return _varint(body, place)
    if wire_type == _FIXED32:
        return 4, place
    if wire_type == _FIXED64:
        return 8, place
    raise ValueError("a group, which no message has")


def _varint(body: bytes, place: int) -> tuple[int, int]:
    """The number, and the place behind it. Raises IndexError or ValueError."""
    if body[place] < 0x80:  # mostly
        return body[place], place + 1
    value = 0
    for shift in range(0, _MOST_VARINT_BITS, 7):
        byte = body[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise ValueError("a number that is too long")
