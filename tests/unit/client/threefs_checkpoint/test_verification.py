from pathlib import Path

import numpy as np
import pytest
from threefs_checkpoint.checkpoint import save
from threefs_checkpoint.job_directory import read_index
from threefs_checkpoint.verification import verify, verify_content

from tests.harness.checkpoint_files import CheckpointFiles, chunk_sizes
from threefs.errors import Corrupt, NotFound

CHUNK = 256


class Counting(CheckpointFiles):
    def read_batch(self, rows, into=None):  # type: ignore[no-untyped-def]
        read.extend(row[0] for row in rows)
        return super().read_batch(rows, into)


read: list[str] = []


@pytest.fixture
def fs(tmp_path: Path) -> CheckpointFiles:
    fs = Counting(str(tmp_path))
    save(fs, "/c", {"a": np.arange(1000), "b": np.arange(7), "e": np.zeros((0, 2))}, chunk_bytes=CHUNK)
    read.clear()
    return fs


@pytest.mark.parametrize("offset", [0, CHUNK - 1, CHUNK, 8000 + 30])
def test_a_changed_byte_is_found_without_reading_content(fs: CheckpointFiles, offset: int) -> None:
    index = read_index(fs, "/c")
    verify(fs, "/c", index)
    content = bytearray(fs._at("/c/data-00000").read_bytes())
    content[offset] ^= 8
    fs._at("/c/data-00000").write_bytes(content)
    with pytest.raises(Corrupt, match=f"chunk {offset // CHUNK} of /c/data-00000 must have .* storage has"):
        verify(fs, "/c", index)
    assert set(read) == {"/c/index"}


def test_a_copy_with_other_chunks_is_read_back(fs: CheckpointFiles) -> None:
    index = read_index(fs, "/c")
    path = fs._at("/c/data-00000")
    chunk_sizes[path.stat().st_ino] = 2 * CHUNK
    verify(fs, "/c", index)
    assert "/c/data-00000" in read
    content = bytearray(path.read_bytes())
    content[5000] ^= 8
    path.write_bytes(content)
    with pytest.raises(Corrupt, match="do not match their checksum"):
        verify(fs, "/c", index)


def test_a_file_that_is_longer_or_missing_is_found(fs: CheckpointFiles) -> None:
    index = read_index(fs, "/c")
    with fs._at("/c/data-00000").open("ab") as file:
        file.write(b"x")
    with pytest.raises(Corrupt, match="the index says"):
        verify(fs, "/c", index)
    fs.remove("/c/data-00000")
    with pytest.raises(NotFound):
        verify(fs, "/c", index)


def test_content_is_compared_with_what_storage_has(fs: CheckpointFiles) -> None:
    fs.write_file("/x", b"abc")
    verify_content(fs, "/x", b"abc")
    for other in (b"abd", b"ab", b""):
        with pytest.raises(Corrupt):
            verify_content(fs, "/x", other)
