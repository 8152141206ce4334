from pathlib import Path

from threefs.env import unwritten_output


def test_what_can_be_written_is_written(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as stream:
        stream.write("a line\n")
        unwritten_output.give_up(stream)
        assert (tmp_path / "out").read_text() == "a line\n"


def test_a_stream_that_takes_nothing_is_written_to_no_more() -> None:
    with Path("/dev/full").open("w") as stream:
        stream.write("a line\n")
        unwritten_output.give_up(stream)
        stream.write("another line\n")
        stream.flush()
