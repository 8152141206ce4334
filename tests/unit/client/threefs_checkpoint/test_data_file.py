from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from threefs_checkpoint.data_file import DataFile, copy_elements
from threefs_checkpoint.file_layout import Fill
from threefs_checkpoint.sharding import HeldShard
from threefs_checkpoint.slices import whole
from threefs_checkpoint.staging import StagingArea

from tests.harness.checkpoint_files import CheckpointFiles
from threefs.errors import Corrupt

CHUNK = 256


def test_a_file_is_copied_written_and_verified_chunk_by_chunk(tmp_path: Path) -> None:
    fs = CheckpointFiles(str(tmp_path))
    arrays = {
        HeldShard(f"t{size}", "int16", (size,), whole((size,))): np.arange(size, dtype=np.int16)
        for size in (3, 128, 500, 33, 1000)
    }
    file, area = DataFile(2, list(arrays), CHUNK), StagingArea(2 * CHUNK, CHUNK)
    for turn in range(2):
        area.begin()
        with ThreadPoolExecutor(1) as beside:
            writing = beside.submit(file.write, fs, f"/data-{turn}", area)
            file.stage(area, arrays)
            area.end()
            crcs = writing.result()
        file.verify(fs, f"/data-{turn}", crcs)
        stored = file.stored(crcs)
        content = (tmp_path / f"data-{turn}").read_bytes()
        assert len(content) == file.length
        damaged = [[crc ^ 1 for crc in each] for each in crcs]
        with pytest.raises(Corrupt):
            file.verify(fs, f"/data-{turn}", damaged)
        for shard, (held, array) in zip(stored, arrays.items(), strict=True):
            assert shard.file == 2 and shard.part == held.part
            assert content[shard.offset : shard.offset + held.nbytes] == array.tobytes()
    assert area.peak_bytes == 2 * CHUNK


def test_a_rank_without_shards_writes_no_file(tmp_path: Path) -> None:
    fs, area = CheckpointFiles(str(tmp_path)), StagingArea(2 * CHUNK, CHUNK)
    area.begin()
    area.end()
    file = DataFile(0, [], CHUNK)
    assert file.write(fs, "/data", area) == [] and file.length == 0 and fs.listing() == []


@given(st.data())
def test_any_range_of_an_array_is_copied_wherever_it_lies_in_memory(data: st.DataObject) -> None:
    source: NDArray[Any] = np.arange(5 * 6 * 7, dtype=np.int32).reshape(5, 6, 7)
    source = data.draw(st.sampled_from([source, source.T, source[:, ::2], source[::-1, 1:, :5], source[2]]))
    begin, end = sorted(data.draw(st.tuples(*[st.integers(0, source.size)] * 2)))
    into = np.zeros(4 * (end - begin), np.uint8)
    copy_elements(source, Fill(0, 0, 4 * begin, 4 * (end - begin)), into)
    assert into.tobytes() == source.tobytes()[4 * begin : 4 * end]
