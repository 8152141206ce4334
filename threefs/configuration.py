"""The configuration of a cluster: values that an administrator sets once for all its processes. Pure.

`KEYS` is the one table of what can be set: the name (that of the field in the settings files), the unit, the bounds,
the default, which programs it concerns, and whether a running process takes a new value. A value comes from the
settings file of the process, else from the configuration of the cluster, else it is the default.
"""

import contextlib
import difflib
import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from threefs.errors import InvalidArgument
from threefs.human_readable import MAX_DIGITS, exact_duration, exact_size, parse_duration, parse_size
from threefs.wire import manager_pb2 as pb

Value = int | float | str

_KIB, _MIB, _GIB, _TIB = (1 << 10 * power for power in (1, 2, 3, 4))
_DAY_S = 86_400.0


class Kind(enum.Enum):
    """The kind of a value, with its unit."""

    SIZE = "bytes"
    RATE = "bytes per second"
    TIME = "seconds"
    COUNT = "a whole number"
    RATIO = "a share of 1"
    WORD = "a word"


class Role(enum.Enum):
    """The programs that take values."""

    MANAGER = "manager"
    META = "meta"
    STORAGE = "storage"
    CLIENT = "client"  # connections of the client library, and mounts


class Source(enum.Enum):
    """Where the value in force comes from."""

    FILE = "file"  # the settings file of the process
    CLUSTER = "cluster"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Key:
    name: str
    kind: Kind
    default: Value
    least: float
    most: float
    roles: frozenset[Role]
    meaning: str
    is_hot: bool = True  # a running process takes it; else it waits for a restart
    words: tuple[str, ...] = ()  # of Kind.WORD: what it may be


def _key(
    name: str, kind: Kind, default: Value, least: float, most: float, role: Role, meaning: str, *, is_hot: bool = True
) -> Key:
    return Key(name, kind, default, least, most, frozenset([role]), meaning, is_hot)


_STORAGE, _META, _MANAGER, _CLIENT = Role.STORAGE, Role.META, Role.MANAGER, Role.CLIENT
_SERVICES = frozenset([_STORAGE, _META, _MANAGER])

KEYS: Mapping[str, Key] = {
    key.name: key
    for key in (
        _key(
            "background_bytes_per_s", Kind.RATE, 8 * _MIB, 1, _TIB, _STORAGE,
            "that resync, moves, repair and the like get at least while clients are served",
        ),
        _key(
            "background_share", Kind.RATIO, 0.1, 0.001, 1.0, _STORAGE,
            "of the time that background work takes while one call of a client is in flight; less if more are",
        ),
        _key(
            "ballast_bytes", Kind.SIZE, 16 * _MIB, 0, _GIB, _STORAGE,
            "per target, held free so that a full disk can be tidied up", is_hot=False,
        ),
        _key("cached_records", Kind.COUNT, 32_768, 2, 1 << 26, _STORAGE, "of chunks, per target, kept in memory"),
        _key(
            "deferred_bytes", Kind.SIZE, 64 * _KIB, 0, _MIB, _STORAGE,
            "the largest change of a chunk that is kept in the record store; 0: none is",
        ),
        _key(
            "deferred_changes", Kind.COUNT, 128, 1, 1024, _STORAGE,
            "that the record store keeps of a chunk, before the chunk is rewritten",
        ),
        _key(
            "fold_interval_s", Kind.TIME, 10.0, 0.01, _DAY_S, _STORAGE,
            "chunks that have not changed for so long are moved from the record store to blocks",
        ),
        _key(
            "full_ratio", Kind.RATIO, 0.98, 0.5, 1.0, _STORAGE,
            "of the disk; beyond it clients' writes are refused",
        ),
        _key(
            "inline_bytes", Kind.SIZE, 16 * _KIB, 0, _MIB, _STORAGE,
            "the largest chunk that lies in the record store as a whole",
        ),
        _key(
            "listing_cache_bytes", Kind.SIZE, 16 * _MIB, 0, 64 * _GIB, _META,
            "of the entries of small directories that a meta service keeps in memory",
        ),
        Key(
            "log_level", Kind.WORD, "info", 0, 0, _SERVICES,
            "the least important lines that programs log", words=("debug", "info", "warning", "error"),
        ),
        _key(
            "max_dirty_bytes", Kind.SIZE, 64 * _MIB, 1, 1024 * _TIB, _CLIENT,
            "that all files of a connection or mount together have written and not made durable yet",
        ),
        _key(
            "max_read_ahead_bytes", Kind.SIZE, 64 * _MIB, 1, 1024 * _TIB, _CLIENT,
            "that all files of a connection together have read ahead",
        ),
        _key(
            "moves_filling_disk", Kind.COUNT, 1, 1, 64, _MANAGER,
            "moves of targets under way that fill one disk",
        ),
        _key(
            "moves_reading_disk", Kind.COUNT, 2, 1, 64, _MANAGER,
            "moves of targets under way that read one disk to fill another one",
        ),
        _key(
            "nearly_full_ratio", Kind.RATIO, 0.85, 0.01, 1.0, _MANAGER,
            "of a disk, from which on `threefs health` warns",
        ),
        _key(
            "orphan_interval_s", Kind.TIME, _DAY_S, 1.0, 366 * _DAY_S, _META,
            "from one search for chunks that belong to no file any more to the next",
        ),
        _key(
            "removals_at_once", Kind.COUNT, 16, 1, 1024, _META,
            "removed files whose chunks a meta service frees side by side",
        ),
        _key("scrub_bytes_per_s", Kind.RATE, 32 * _MIB, 1, _TIB, _STORAGE, "at which a disk is read and verified"),
        _key(
            "scrub_interval_s", Kind.TIME, 7 * _DAY_S, 1.0, 366 * _DAY_S, _STORAGE,
            "in which everything is read and verified once",
        ),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Configuration:
    """One version of what was set. `texts` has the values as they are stored and sent, by key."""

    version: int = 0
    made_ns: int = 0
    texts: Mapping[str, str] = field(default_factory=dict)


NOTHING_SET = Configuration()


def find(name: str) -> Key:
    """Raises InvalidArgument, which says the nearest name."""
    key = KEYS.get(name)
    if key is None:
        near = difflib.get_close_matches(name, KEYS, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else "`threefs config get` lists the keys"
        raise InvalidArgument(f"the configuration has no key {name!r}: {hint}")
    return key


def parse(key: Key, text: str) -> Value:
    """The value that a person or a message says. Raises InvalidArgument, which says the bounds."""
    value = _parsed(key.kind, text.strip())
    if key.kind is Kind.WORD:
        if text not in key.words:
            raise InvalidArgument(f"{key.name} must be {', '.join(key.words[:-1])} or {key.words[-1]}, not {text!r}")
        return text
    if value is None:
        raise InvalidArgument(
            f"{key.name} must be {key.kind.value}, for example {shown(key, key.default)}, not {text!r}"
        )
    return check(key, value)


def _parsed(kind: Kind, text: str) -> int | float | None:
    match kind:
        case Kind.SIZE | Kind.RATE:
            return parse_size(text.removesuffix("/s"))
        case Kind.TIME:
            seconds = parse_duration(text)
            return _number(text) if seconds is None else seconds
        case Kind.RATIO if text.endswith("%"):
            percent = _number(text[:-1])
            return None if percent is None else percent / 100
        case Kind.RATIO:
            return _number(text)
        case Kind.COUNT:
            return int(text) if text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS else None
    return None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def check(key: Key, value: Value) -> Value:
    """The value, if it is of the kind of the key and within its bounds. Raises InvalidArgument."""
    if key.kind is Kind.WORD:
        return parse(key, str(value))
    if isinstance(value, str) or not key.least <= value <= key.most:  # also what is not a number
        raise InvalidArgument(
            f"{key.name} is from {shown(key, key.least)} to {shown(key, key.most)}, not "
            f"{value if isinstance(value, str) else shown(key, value)}"
        )
    return value


def text_of(value: Value) -> str:
    """As values are stored and sent."""
    return repr(value) if isinstance(value, float) else str(value)


def shown(key: Key, value: Value) -> str:
    """For people. `parse` takes it, too."""
    if isinstance(value, str):
        return value
    match key.kind:
        case Kind.SIZE:
            return exact_size(int(value))
        case Kind.RATE:
            return exact_size(int(value)) + "/s"
        case Kind.TIME:
            return exact_duration(value)
        case Kind.COUNT:
            return str(int(value))
    return f"{value:g}"


def _values_of(texts: Mapping[str, str]) -> dict[str, Value]:
    """The values of all keys: what is set, else the defaults, also for what only a later release takes."""
    found = {name: key.default for name, key in KEYS.items()}
    for name in KEYS.keys() & texts.keys():
        with contextlib.suppress(InvalidArgument):
            found[name] = parse(KEYS[name], texts[name])
    return found


def _warns_before_it_is_full(values: Mapping[str, Value]) -> str:
    nearly, full = values["nearly_full_ratio"], values["full_ratio"]
    assert not isinstance(nearly, str) and not isinstance(full, str)
    if nearly < full:
        return ""
    return f"nearly_full_ratio ({nearly:g}) must be below full_ratio ({full:g}), or the warning comes too late"


#: Conditions between the values of these keys; each returns an error in words.
CONSTRAINTS: Mapping[tuple[str, ...], Callable[[Mapping[str, Value]], str]] = {
    ("nearly_full_ratio", "full_ratio"): _warns_before_it_is_full,
}


def check_together(values: Mapping[str, Value], names: Iterable[str]) -> None:
    """Check what concerns the keys of these names: other values may be those of a later release, which has other
    bounds. Raises InvalidArgument."""
    for concerned, constraint in CONSTRAINTS.items():
        wrong = "" if set(concerned).isdisjoint(names) else constraint(values)
        if wrong:
            raise InvalidArgument(wrong)


def changed(texts: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """The values after these changes; None takes a key back to its default. Raises InvalidArgument."""
    after = dict(texts)
    for name, text in changes.items():
        if text is None and name in after:  # also one that a later release has set
            del after[name]
        elif text is None:
            find(name)
        else:
            after[name] = text_of(parse(find(name), text))
    check_together(_values_of(after), changes)
    return dict(sorted(after.items()))


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, tuple[str | None, str | None]]:
    """The old and the new value of each key that differs; None: the default."""
    names = sorted(before.keys() | after.keys())
    return {name: (before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)}


def from_wire(message: pb.Configuration) -> Configuration:
    return Configuration(message.version, message.made_ns, {each.name: each.value for each in message.values})


def to_wire(configuration: Configuration) -> pb.Configuration:
    return pb.Configuration(
        version=configuration.version,
        made_ns=configuration.made_ns,
        values=[pb.ConfigurationValue(name=name, value=text) for name, text in sorted(configuration.texts.items())],
    )


def in_force(
    name: str, current: Configuration, report: pb.ConfigurationReport
) -> tuple[Value | None, Source, pb.KeyState]:
    """(the value that a process runs with, where it is from, why it is not that of the configuration). None: the
    process has another version, so it is not known here.

    `current` is the newest version, `report` what the process has said.
    """
    key = find(name)
    own = next((each for each in report.keys if each.name == name), None)
    if own is not None:
        value = parse(key, own.value) if own.value else None
        return value, Source.FILE if own.state == pb.OWN_FILE else Source.CLUSTER, own.state
    if report.made_ns != current.made_ns:
        return None, Source.CLUSTER, pb.KEY_STATE_UNSPECIFIED
    text = current.texts.get(name)
    if text is None:
        return key.default, Source.DEFAULT, pb.KEY_STATE_UNSPECIFIED
    return parse(key, text), Source.CLUSTER, pb.KEY_STATE_UNSPECIFIED
