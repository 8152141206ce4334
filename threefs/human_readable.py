"""Sizes and counts as people read them."""

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


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
