"""Values of options as fio writes them: sizes, times, pairs for reads and writes, splits and distributions."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from threefs.errors import InvalidArgument

T = TypeVar("T")
_SIZE_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_TIME_UNITS_S = {"us": 1e-6, "ms": 1e-3, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_FLAGS = {"1": True, "true": True, "0": False, "false": False}
ZIPF_THETA = 1.1  # fio's own default
_MAX_THETA = 10.0
_MAX_SIZE = (1 << 63) - 1  # an offset in a file is a signed number of 64 bits
_MAX_DIGITS = 19  # of that
_MAX_DAYS = 366
_DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class Pair:
    """A number for reads and one for writes."""

    read: int
    write: int


@dataclass(frozen=True, slots=True)
class Share:
    """A thing and how many percent of the operations have it."""

    what: str
    percent: float


@dataclass(frozen=True, slots=True)
class Distribution:
    """How often each block is picked: all alike, or by Zipf's law with the exponent `theta`."""

    theta: float = 0.0  # 0: all alike

    @property
    def is_zipf(self) -> bool:
        return self.theta > 0


def size(text: str) -> int:
    """Bytes; k, m, g, t and p are powers of 1024, as in fio."""
    found = re.fullmatch(r"(\d+)([kmgtp]?)(i?)b?", text.strip().lower())
    if found is None:
        raise InvalidArgument(f"{text!r} is not a size: write a number of bytes, or for example 4k, 1m or 10g")
    if found[3]:
        raise InvalidArgument(
            f"{text!r} is a power of 1000 in some versions of fio and of 1024 elsewhere: write {found[1]}{found[2]}, "
            "which is a power of 1024 in all of them"
        )
    digits = found[1].lstrip("0") or "0"
    count = int(digits) << 10 * _SIZE_UNITS[found[2]] if len(digits) <= _MAX_DIGITS else _MAX_SIZE + 1
    if count > _MAX_SIZE:
        raise InvalidArgument(f"no file can be so large: the most is {_MAX_SIZE} bytes, just below 8 EiB")
    return count


def seconds(text: str) -> float:
    """A time; without a unit it is in seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(us|ms|s|m|h|d|)", text.strip().lower())
    if found is None:
        raise InvalidArgument(f"{text!r} is not a time: write seconds, or for example 500ms, 30s, 5m or 1h")
    given_s = float(found[1]) * _TIME_UNITS_S[found[2]]
    if given_s > _MAX_DAYS * _DAY_S:
        raise InvalidArgument(f"a time of more than {_MAX_DAYS} days is taken for a mistake")
    return given_s


def number(low: int, high: int) -> Callable[[str], int]:
    """A reader of whole numbers from `low` to `high`; k, m and g are powers of 1024 here too, as in fio."""

    def parse(text: str) -> int:
        given = re.fullmatch(r"(-?[0-9]{1,19})([kmg]?)", text.strip().lower())
        if given is None:
            raise InvalidArgument(f"{text!r} is not a whole number")
        found = int(given[1]) << 10 * _SIZE_UNITS[given[2]]
        if not low <= found <= high:
            raise InvalidArgument(f"{found} is not from {low} to {high}")
        return found

    return parse


def flag(text: str) -> bool:
    """1 or 0."""
    if text.lower() not in _FLAGS:
        raise InvalidArgument(f"{text!r} is neither 1 (yes) nor 0 (no)")
    return _FLAGS[text.lower()]


def text(given: str) -> str:
    if not given:
        raise InvalidArgument("a value is missing")
    return given


def choice(*names: str) -> Callable[[str], str]:
    """A reader of one of these words."""

    def parse(given: str) -> str:
        if given not in names:
            raise InvalidArgument(f"{given!r} is none of {', '.join(names)}")
        return given

    return parse


def pair(parse: Callable[[str], int], default: int) -> Callable[[str], Pair]:
    """A reader of "x" for both directions, or "x,y" for reads and writes. "x," and ",y" leave one at `default`."""

    def parse_pair(given: str) -> Pair:
        parts = given.split(",")
        if len(parts) > 2:
            raise InvalidArgument(f"{given!r} has {len(parts)} values: give one, or one for reads and one for writes")
        if not any(parts):
            raise InvalidArgument("a value is missing")
        found = [parse(part) if part else default for part in parts]
        return Pair(found[0], found[-1])

    return parse_pair


def shares(given: str) -> tuple[Share, ...]:
    """The value before each slash, with the percentage behind it: "4k/60:64k/40". Entries without a percentage
    share the rest evenly. Raises InvalidArgument unless the sum is 100."""
    parts = [part.partition("/") for part in given.split(":")]
    named = [_percent(percent) for _, _, percent in parts if percent]
    blank = len(parts) - len(named)
    rest = (100.0 - sum(named)) / blank if blank else 0.0
    found = tuple(Share(what, _percent(percent) if percent else rest) for what, _, percent in parts)
    total = sum(share.percent for share in found)
    if abs(total - 100.0) > 1e-6 or rest < 0:
        raise InvalidArgument(f"the percentages of {given!r} add up to {sum(named):g}, not to 100")
    return found


def _percent(given: str) -> float:
    try:
        return float(number(0, 100)(given))
    except InvalidArgument:
        raise InvalidArgument(f"{given!r} is not a percentage from 0 to 100") from None


def splits(given: str) -> tuple[tuple[Share, ...], tuple[Share, ...]]:
    """The split of block sizes for reads, and the one for writes."""
    parts = given.split(",")
    if len(parts) > 2:
        raise InvalidArgument(f"{given!r} has {len(parts)} splits: give one, or one for reads and one for writes")
    found = [shares(part) for part in parts]
    for share in (share for split in found for share in split):
        size(share.what)
    return found[0], found[-1]


def distribution(given: str) -> Distribution:
    """ "random" (or "uniform"), "zipf" or "zipf:THETA"."""
    name, _, theta = given.partition(":")
    if name in ("random", "uniform") and not theta:
        return Distribution()
    if name != "zipf":
        raise InvalidArgument(f"{given!r} is not a distribution: write random, zipf or zipf:1.2")
    try:
        found = float(theta or ZIPF_THETA)
    except ValueError:
        found = 0.0
    if not 0 < found <= _MAX_THETA:
        raise InvalidArgument(f"theta of zipf is a number above 0 and up to {_MAX_THETA:g}, not {theta!r}")
    return Distribution(found)


def shown_size(count: float) -> str:
    """For people, with powers of 1024."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f}{unit}" if unit == "B" else f"{count:.1f}{unit}"
        count /= 1024
    return f"{count:.1f}TiB"
