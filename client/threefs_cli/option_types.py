"""Types and options that several commands share: sizes, durations, --json."""

import re

import click

from threefs.human_readable import parse_size

_DURATION_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class Size(click.ParamType[int]):
    """Bytes, or with a unit: 10G is 10 GiB."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = parse_size(str(value))
        if found is None:
            self.fail(f"{value!r} is not a size: say for example 500M, 10G, 2T or a number of bytes", param, ctx)
        return found


class Duration(click.ParamType[int]):
    """Seconds; "off" is 0."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value).lower()
        found = re.fullmatch(r"(\d+)([smhdw])", text)
        if found is None and text != "off":
            self.fail(f"{value!r} is not a time: say for example 12h, 7d, 4w or off", param, ctx)
        return int(found[1]) * _DURATION_UNITS_S[found[2]] if found else 0


def format_duration(seconds: int) -> str:
    """In the largest unit that does not hide much of it."""
    for unit, size in reversed(_DURATION_UNITS_S.items()):
        if seconds >= 2 * size or unit == "s":
            return f"{seconds // size}{unit}"
    raise AssertionError("the loop ends with seconds")
