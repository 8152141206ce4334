from typing import Any

import pytest
from threefs_bench.load.job import Job
from threefs_bench.load.load_engine import Assignment, fill, layout_rows
from threefs_bench.load.turns import Window

from threefs.errors import InvalidArgument


def part(**given: Any) -> Assignment:
    return Assignment(Job({"name": "a", **{name: str(value) for name, value in given.items()}}, {}), 1, 2, "h", "/key")


def test_an_assignment_comes_back_from_json() -> None:
    made = part(size="1m", rw="write")
    same = Assignment.from_json(made.as_json())
    assert same.job.values == made.job.values
    assert (same.number, same.process, same.host, same.key_file) == (1, 2, "h", "/key")
    assert same.paths() == ["/h.a.2.0"]
    with pytest.raises(InvalidArgument):
        Assignment.from_json({"given": {"name": "a", "size": "1m"}, "inherited": {}})


def test_only_verified_jobs_have_a_ledger() -> None:
    assert part(size="1m").ledger() is None
    assert part(size="1m", verify="crc32c").ledger() is not None
    assert part(size="1m").turns(Window(0, 0, 1), None).take(0.5) is not None


def test_buffers_are_filled_with_random_bytes() -> None:
    buffer = bytearray((2 << 20) + 5)
    fill(memoryview(buffer))
    assert len(set(buffer[:4096])) > 100 and buffer[-5:] == buffer[:5]


def test_a_file_is_laid_out_in_pieces_or_in_verified_blocks() -> None:
    assert [row[1:] for row in layout_rows(part(size="1500k").job, 3)] == [(0, 1 << 20), (1 << 20, 476 << 10)]
    rows = list(layout_rows(part(size="10k", bs="4k", verify="crc32c").job, 3))
    assert rows == [(3, 0, 4096), (3, 4096, 4096)]
