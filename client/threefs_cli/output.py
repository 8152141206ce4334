"""The output of commands: JSON for programs, text and tables for people."""

import json
import stat
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

# Commands print these through this module, too.
from threefs.human_readable import count_of as count_of
from threefs.human_readable import size as size

if TYPE_CHECKING:
    from rich.table import Table
    from threefs_client import Attributes

_WIDE = 160


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))


def print_json_line(value: Any) -> None:
    """For what goes on: one object a line."""
    click.echo(json.dumps(value))


def table(*heads: str, **style: Any) -> "Table":
    """A table of rich, with one column for each head."""
    from rich.table import Table  # only here: rich takes longer to import than most of what needs no table

    return Table(*heads, **style)


def print_table(shown: "Table") -> None:
    from rich.console import Console

    console = Console(markup=False, emoji=False)  # names of files and tensors may have brackets and colons
    if not console.is_terminal:
        console.width = _WIDE  # nothing is cut off in a file or a pipe
    console.print(shown)


def timestamp(time_ns: int) -> str:
    """Seconds in UTC, as ISO 8601."""
    return datetime.fromtimestamp(time_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def printable(name: str) -> str:
    """A name without control characters and without what cannot be encoded."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in name)


def attributes_json(path: str, found: "Attributes") -> dict[str, Any]:
    described: dict[str, Any] = {
        "path": path,
        "kind": found.kind,
        "inode": found.inode,
        "mode": f"{found.mode:04o}",
        "uid": found.uid,
        "gid": found.gid,
        "nlink": found.nlink,
        "length_bytes": found.length,
        "atime_ns": found.atime_ns,
        "mtime_ns": found.mtime_ns,
        "ctime_ns": found.ctime_ns,
        "birth_ns": found.birth_ns,
    }
    if found.layout is not None:
        described["chunk_bytes"] = found.layout.chunk_bytes
        described["stripe"] = found.layout.stripe
        described["table_id"] = found.layout.table_id
    if found.is_symlink:
        described["target"] = found.target
    if found.trash_s is not None:
        described["trash_s"] = found.trash_s
    return described


def long_line(name: str, found: "Attributes") -> str:
    """As `ls -l` shows it."""
    shown = printable(name) + (f" -> {printable(found.target)}" if found.is_symlink else "")
    mode = stat.filemode(found.st_mode)
    return (
        f"{mode} {found.nlink:>3} {found.uid:>5} {found.gid:>5} {found.length:>14} {timestamp(found.mtime_ns)} {shown}"
    )
