"""Sizes as people write them."""

import re

import click

_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}


class Size(click.ParamType[int]):
    """Bytes, or with a unit: 10G is 10 GiB."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = re.fullmatch(r"(\d+)([kmgtp]?)(i?b)?", str(value).lower())
        if found is None:
            self.fail(f"{value!r} is not a size: say for example 500M, 10G, 2T or a number of bytes", param, ctx)
        return int(found[1]) << 10 * _UNITS[found[2]]
