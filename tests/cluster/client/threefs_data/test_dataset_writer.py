from collections.abc import Iterator
from pathlib import Path

import pytest
from threefs_data import Dataset, DatasetWriter, pack, pack_files
from threefs_data import format as dataset_format

from tests.harness.local_files import LocalFiles
from threefs.errors import AlreadyExists, InvalidArgument, NotFound


@pytest.fixture
def fs(tmp_path: Path) -> LocalFiles:
    return LocalFiles(str(tmp_path))


def packed(fs: LocalFiles) -> list[bytes]:
    with Dataset(fs, "/ds") as dataset:
        return dataset.__getitems__(range(len(dataset)))


def test_files_become_samples(fs: LocalFiles, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.txt").write_bytes(b"%d" % number * number)
    assert pack_files(fs, [f"/{number}.txt" for number in range(3)], "/ds") == 3
    assert packed(fs) == [b"", b"1", b"22"]


def test_many_files_are_read_in_batches(fs: LocalFiles, tmp_path: Path) -> None:
    contents = [bytes([number % 256]) * (number * 97 % 7919) for number in range(600)] + [b"x" * 9_000_000] * 2
    for number, content in enumerate(contents):
        (tmp_path / f"{number}.txt").write_bytes(content)
    assert pack_files(fs, (f"/{number}.txt" for number in range(602)), "/ds") == 602
    assert packed(fs) == contents


def test_a_missing_file_is_named_and_nothing_is_made(fs: LocalFiles, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(NotFound, match="/b"):
        pack_files(fs, ["/a", "/b"], "/ds")
    assert fs.listing() == ["a"]


def test_samples_of_any_kind_of_buffer(fs: LocalFiles) -> None:
    pack(fs, [b"a", bytearray(b"b"), memoryview(b"xcx")[1:2]], "/ds")
    assert packed(fs) == [b"a", b"b", b"c"]


def test_an_empty_dataset_is_a_dataset(fs: LocalFiles) -> None:
    assert pack(fs, [], "/ds") == 0
    assert packed(fs) == []


def test_large_samples_and_many_shards(fs: LocalFiles) -> None:
    samples = [bytes([number]) * 3_000_000 for number in range(5)]
    pack(fs, samples, "/ds", shard_bytes=6_000_000)
    assert [shard.samples for shard in Dataset(fs, "/ds").index.shards] == [2, 2, 1]
    assert packed(fs) == samples


def test_a_failure_leaves_nothing_behind(fs: LocalFiles) -> None:
    def samples() -> Iterator[bytes]:
        yield b"a"
        raise KeyError("the source broke")

    with pytest.raises(KeyError):
        pack(fs, samples(), "/ds")
    assert fs.listing() == []


def test_an_existing_dataset_is_not_touched(fs: LocalFiles) -> None:
    pack(fs, [b"old"], "/ds")
    with pytest.raises(AlreadyExists):
        pack(fs, [b"new"], "/ds")
    assert fs.listing() == ["ds"]
    assert packed(fs) == [b"old"]


def test_nothing_is_visible_before_the_end(fs: LocalFiles) -> None:
    with DatasetWriter(fs, "/ds") as writer:
        writer.add(b"a")
        assert "ds" not in fs.listing()
    assert fs.listing() == ["ds"]


def test_limits(fs: LocalFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgument):
        DatasetWriter(fs, "/ds", shard_bytes=0)
    monkeypatch.setattr(dataset_format, "MAX_SAMPLE_BYTES", 10)
    with pytest.raises(InvalidArgument, match="11 bytes"):
        pack(fs, [b"v" * 11], "/ds")
