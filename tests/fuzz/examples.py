"""Messages with something in every field, so that mutations of them reach behind the first check."""

from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

_DEEPEST = 4
_NUMBER, _ID, _TEXT = 1, 101, "/a"


def filled(message: Message, depth: int = 0) -> Message:
    """`message` itself, with small numbers, an identity, a path in all its fields, and one row in each list."""
    for field in message.DESCRIPTOR.fields:
        nested = field.message_type is not None
        if nested and depth == _DEEPEST:
            continue
        if field.is_repeated:
            rows = getattr(message, field.name)
            if nested:
                filled(rows.add(), depth + 1)
            else:
                rows.append(_value(field))
        elif nested:
            child = getattr(message, field.name)
            child.SetInParent()
            filled(child, depth + 1)
        else:
            setattr(message, field.name, _value(field))
    return message


def _value(field: Any) -> object:
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        if field.type != FieldDescriptor.TYPE_BYTES:
            return _TEXT
        return _TEXT.encode() if "path" in field.name or "name" in field.name else b"c" * 16
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return True
    return _ID if "target" in field.name else _NUMBER
