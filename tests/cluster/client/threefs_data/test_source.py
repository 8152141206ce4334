import pickle
from pathlib import Path

import pytest
from threefs_data import Dataset, Datasets, pack
from threefs_data.source import reopened

from tests.harness import dataset_version_1
from tests.harness.local_files import LocalFiles
from threefs.errors import Corrupt, InvalidArgument

FIRST = [b"a%d" % number for number in range(30)]
SECOND = [b"b" * 8 for number in range(20)]
THIRD = [b"c" * number for number in range(10)]


@pytest.fixture
def fs(tmp_path: Path) -> LocalFiles:
    files = LocalFiles(str(tmp_path))
    pack(files, FIRST, "/first", shard_bytes=4150)
    pack(files, SECOND, "/second", shard_bytes=4150)
    dataset_version_1.write(tmp_path / "third", THIRD, 4)
    return files


def opened(fs: LocalFiles) -> Datasets:
    return Datasets(Dataset(fs, "/first"), Dataset(fs, "/second"), Dataset(fs, "/third"))


def test_datasets_of_any_kind_are_read_as_one(fs: LocalFiles) -> None:
    datasets = opened(fs)
    everything = [*FIRST, *SECOND, *THIRD]
    assert len(datasets) == 60 and datasets.lengths == (30, 20, 10)
    numbers = [(7 * number) % 60 for number in range(60)]
    assert [bytes(sample) for sample in datasets.read(numbers)] == [everything[number] for number in numbers]
    assert datasets.read([]) == []
    datasets.close()


def test_another_process_gets_datasets_of_its_own(fs: LocalFiles) -> None:
    with_one_open = opened(fs)
    assert bytes(with_one_open.read([0])[0]) == b"a0"
    for copy in (pickle.loads(pickle.dumps(with_one_open)), reopened(with_one_open)):  # noqa: S301
        assert isinstance(copy, Datasets) and copy.fingerprint == with_one_open.fingerprint
        assert bytes(copy.read([59])[0]) == b"c" * 9
        copy.close()
    with_one_open.close()


def test_errors_name_the_sample_and_its_file(fs: LocalFiles, tmp_path: Path) -> None:
    datasets = opened(fs)
    for number in (-1, 60):
        with pytest.raises(InvalidArgument, match=f"no sample {number} among the 60"):
            datasets.read([number])
    with pytest.raises(InvalidArgument):
        Datasets()
    shard = tmp_path / "second" / "shard-00000.records"
    shard.write_bytes(shard.read_bytes()[:4100] + b"x" + shard.read_bytes()[4101:])
    with pytest.raises(Corrupt, match="/second/shard-00000"):
        datasets.read([0, 30])
    datasets.close()


def test_other_datasets_have_another_fingerprint(fs: LocalFiles) -> None:
    datasets = opened(fs)
    assert len({datasets.fingerprint, Datasets(*datasets.datasets[::-1]).fingerprint}) == 2
    datasets.close()


def test_all_are_of_one_cluster(fs: LocalFiles, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = LocalFiles(str(tmp_path / "other"))
    for files in (fs, other):
        pack(files, [b"a"], "/one")
    with pytest.raises(InvalidArgument, match="/one is read by another connection than /one, perhaps from another clu"):
        Datasets(Dataset(fs, "/one"), Dataset(other, "/one"))
    assert len(Datasets(Dataset(fs, "/one"), Dataset(LocalFiles(fs.root), "/one"))) == 2
