import pytest
from threefs_data import version_1
from threefs_data.format import Shard

from tests.harness.dataset_version_1 import encode_table
from threefs.checksums import crc32c
from threefs.errors import Corrupt


def table_of(starts: list[int]) -> tuple[bytes, Shard]:
    content = encode_table(starts, list(range(len(starts) - 1)))
    return content, Shard(len(starts) - 1, starts[-1], 0, True, crc32c(content))


def test_a_table_comes_back() -> None:
    content, shard = table_of([16, 20, 20, 116])
    table = version_1.decode_table(content, shard, "x")
    assert table.starts.tolist() == [16, 20, 20, 116]
    assert table.crcs.tolist() == [0, 1, 2]
    assert version_1.table_bytes(shard) == len(content)


@pytest.mark.parametrize("starts", [[15, 20], [16, 21, 20], [16, 17 + (1 << 30)]])
def test_tables_that_make_no_sense_are_refused(starts: list[int]) -> None:
    with pytest.raises(Corrupt):
        version_1.decode_table(*table_of(starts), "x")


def test_damaged_tables_are_refused() -> None:
    content, shard = table_of([16, 20, 116])
    with pytest.raises(Corrupt, match="checksum"):
        version_1.decode_table(content[:-1] + b"\x80", shard, "x")
    with pytest.raises(Corrupt, match="bytes"):
        version_1.decode_table(content[:-1], shard, "x")
