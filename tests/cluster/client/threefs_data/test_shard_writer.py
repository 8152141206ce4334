from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threefs_data import Dataset, format, pack
from threefs_data.shard_writer import ShardWriter, write_index

from tests.harness.local_files import LocalFiles
from threefs.errors import InvalidArgument


def test_shards_written_in_any_order_make_a_dataset(tmp_path: Path) -> None:
    fs = LocalFiles(str(tmp_path))
    fs.mkdir("/ds")
    shards = {}
    for number in (2, 0, 1):
        writer = ShardWriter(fs, f"/ds/{format.shard_name(number)}", number)
        for sample in range(5):
            writer.add(b"%d of %d" % (sample, number))
        assert writer.samples == 5
        shards[number] = writer.finish()
    write_index(fs, "/ds", [shards[number] for number in range(3)])
    with Dataset(fs, "/ds") as dataset:
        assert [dataset[number] for number in range(15)] == [b"%d of %d" % (n % 5, n // 5) for n in range(15)]


def test_a_sample_that_is_too_large_is_refused(tmp_path: Path) -> None:
    fs = LocalFiles(str(tmp_path))
    writer = ShardWriter(fs, "/shard", 0)
    with pytest.raises(InvalidArgument, match="larger than"):
        writer.add(bytearray(format.MAX_SAMPLE_BYTES + 1))
    writer.close()


def test_samples_may_be_arrays(tmp_path: Path) -> None:
    """numpy would add one of the right length to the bytes before it."""
    fs = LocalFiles(str(tmp_path))
    page = np.arange(format.DATA_START, dtype=np.uint8)
    arrays: list[Any] = [page, page[:1], np.arange(6.0).reshape(2, 3), np.empty((0, 3)), page, page[::-2]]
    pack(fs, arrays, "/ds")
    with Dataset(fs, "/ds") as dataset:
        assert dataset.__getitems__(range(6)) == [array.tobytes() for array in arrays]
