from pathlib import Path

import pytest

from benchmarks import writers
from benchmarks.load_runs import CpuMeter

SMALL = 300_000


@pytest.mark.parametrize("shape", writers.SHAPES, ids=lambda shape: shape.name)
def test_records_of_all_writers_fill_their_files_without_a_gap(shape: writers.Shape) -> None:
    places: dict[Path, list[int]] = {}
    for writer in range(writers.PROCESSES):
        for offset, _ in shape.records(writer, 4 * shape.record_bytes):
            places.setdefault(shape.path(Path("/"), writer), []).append(offset)
    assert len(places) == (1 if shape.shared else writers.PROCESSES)
    for offsets in places.values():
        assert sorted(offsets) == [number * shape.record_bytes for number in range(len(offsets))]


def test_no_two_records_are_equal() -> None:
    found = {writers.record(writers.HARD, writer, number) for writer in range(4) for number in range(50)}
    assert len(found) == 200 and {len(record) for record in found} == {writers.HARD.record_bytes}


@pytest.mark.slow
@pytest.mark.parametrize("shape", writers.SHAPES, ids=lambda shape: shape.name)
def test_what_was_written_is_read_and_a_wrong_byte_is_noticed(shape: writers.Shape, tmp_path: Path) -> None:
    servers = CpuMeter([])
    wrote = writers.run(tmp_path, shape, SMALL, reading=False, servers=servers)
    read = writers.run(tmp_path, shape, SMALL, reading=True, servers=servers)
    assert wrote.amount == read.amount == sum(path.stat().st_size for path in tmp_path.iterdir())
    path = shape.path(tmp_path, 1)
    content = bytearray(path.read_bytes())
    content[shape.record_bytes - 1] ^= 1
    path.write_bytes(content)
    with pytest.raises(OSError, match="record 0 at offset 0 is not what was written"):
        writers.run(tmp_path, shape, SMALL, reading=True, servers=servers)
