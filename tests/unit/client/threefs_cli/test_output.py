import json

import pytest
from rich.table import Table
from threefs_cli import output
from threefs_client import Attributes

from threefs.wire import meta_pb2 as pb

FILE = Attributes(
    pb.Inode(
        inode=9,
        type=pb.FILE,
        mode=0o640,
        uid=1,
        gid=2,
        nlink=1,
        length=5,
        mtime_ns=1_700_000_000_999_999_999,
        layout=pb.Layout(chunk_bytes=1 << 20, table_id=1, stripe=3),
    )
)


def test_one_thing_is_not_many() -> None:
    assert [output.count_of(count, "copy", "copies") for count in (0, 1, 2)] == ["0 copies", "1 copy", "2 copies"]


def test_names_cannot_play_with_the_terminal() -> None:
    assert output.printable("a\x1b[31mb\nc\udcff ü") == r"a\x1b[31mb\nc\udcff ü"


def test_attributes_as_json() -> None:
    row = json.loads(json.dumps(output.attributes_json("/f", FILE)))
    assert (row["path"], row["mode"], row["length_bytes"], row["chunk_bytes"]) == ("/f", "0640", 5, 1 << 20)
    assert "target" not in row


def test_a_long_line() -> None:
    line = output.long_line("f", FILE)
    assert line.startswith("-rw-r----- ") and line.endswith(" 5 2023-11-14T22:13:20Z f")


def test_a_table_in_a_pipe_is_not_cut(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("a", "b")
    table.add_row("x" * 70, "y" * 70)
    output.print_table(table)
    printed = capsys.readouterr().out
    assert "x" * 70 in printed and "y" * 70 in printed


@pytest.mark.parametrize("name", ["[/b]", "[red]x", "layers[0].w", ":smile:"])
def test_a_name_in_a_table_stands_there_as_it_is(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("a")
    table.add_row(name)
    output.print_table(table)
    assert name in capsys.readouterr().out
