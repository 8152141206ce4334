"""Settings of a program: a frozen dataclass read from TOML. An unknown key is an error, never ignored.

Nested dataclasses are tables of the file. Field names say their unit. A field that is None by default has a value only
if the file says one.
"""

import dataclasses
import tomllib
import types
import typing
from pathlib import Path
from typing import Any, TypeVar

from threefs.errors import InvalidSettings

T = TypeVar("T")


def load(cls: type[T], path: Path) -> T:
    """Read `path` into the dataclass `cls`. Raises InvalidSettings, which names the file and the key."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidSettings(f"settings file {path} does not exist") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSettings(f"settings file {path} is not valid TOML: {error}") from None
    return from_table(cls, table, where=str(path))


def from_table(cls: type[T], table: dict[str, Any], where: str) -> T:
    """Build `cls` from parsed TOML. `where` names the source in errors."""
    assert dataclasses.is_dataclass(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    unknown = sorted(set(table) - set(fields))
    if unknown:
        raise InvalidSettings(f"{where}: unknown setting {unknown[0]!r}; known are {', '.join(sorted(fields))}")
    hints = typing.get_type_hints(cls)
    values = {name: _value(hints[name], value, f"{where}: {name}") for name, value in table.items()}
    missing = [
        name
        for name, field in fields.items()
        if name not in values and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise InvalidSettings(f"{where}: setting {missing[0]!r} is missing")
    return cls(**values)


def _value(expected: Any, value: Any, where: str) -> Any:
    if typing.get_origin(expected) is types.UnionType:  # a value or None, which a file cannot say
        expected = next(part for part in typing.get_args(expected) if part is not types.NoneType)
    if dataclasses.is_dataclass(expected) and isinstance(expected, type):
        if not isinstance(value, dict):
            raise InvalidSettings(f"{where} must be a table")
        return from_table(expected, value, where)
    if typing.get_origin(expected) is tuple:
        if not isinstance(value, list):
            raise InvalidSettings(f"{where} must be a list")
        item = typing.get_args(expected)[0]
        return tuple(_value(item, part, f"{where}[{number}]") for number, part in enumerate(value))
    if expected is Path and isinstance(value, str):
        return Path(value)
    if expected is float and type(value) is int:
        return float(value)
    if type(value) is not expected:
        raise InvalidSettings(f"{where} must be {expected.__name__}, not {value!r}")
    return value
