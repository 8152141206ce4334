"""Sizes, times and counts as people read and write them."""

import re

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
#: No size and no count is longer. Python itself refuses to read a number of more than 4300 digits, with a ValueError.
MAX_DIGITS = 40
_SIZE = re.compile(rf"(\d{{1,{MAX_DIGITS}}})\s*([kmgtpe]?)(?:i?b)?", re.IGNORECASE)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")
DURATION_UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}


def parse_size(text: str) -> int | None:
    """The bytes of "8388608", "8M", "8 MiB" or "8MB", which all say the same; None for what is no size."""
    found = _SIZE.fullmatch(text)
    return None if found is None else int(found[1]) << 10 * " kmgtpe".index(found[2].lower() or " ")


def parse_duration(text: str) -> float | None:
    """The seconds of "250ms", "10s", "12h", "7d" or "4w"; None for what is no time."""
    found = _DURATION.fullmatch(text)
    return None if found is None else float(found[1]) * DURATION_UNITS_S[found[2]]


def exact_size(length_bytes: int) -> str:
    """For people, in the largest unit that hides nothing: 8388608 is "8 MiB", 8388609 is "8388609 B"."""
    unit = "B"
    for larger in _UNITS:
        if not length_bytes or length_bytes % 1024:
            break
        length_bytes, unit = length_bytes // 1024, larger
    return f"{length_bytes} {unit}"


def exact_duration(seconds: float) -> str:
    """For people, in the largest unit of which it is a whole number: 604800 is "7d", 0.25 is "0.25s"."""
    for unit in ("d", "h", "m"):
        if seconds and seconds % DURATION_UNITS_S[unit] == 0:
            return f"{seconds / DURATION_UNITS_S[unit]:g}{unit}"
    return f"{seconds:g}s"


def size(length_bytes: float) -> str:
    """For people: 1536 is "1.5 KiB"."""
    if length_bytes < 1024:
        return f"{length_bytes:.0f} B"
    for unit in _UNITS:
        length_bytes /= 1024
        if length_bytes < 1024 or unit == _UNITS[-1]:
            break
    return f"{length_bytes:.1f} {unit}"


def count_of(count: int, one: str, many: str) -> str:
    """For people: "1 file", "2 files"."""
    return f"{count} {one if count == 1 else many}"
