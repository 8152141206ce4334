import pickle

from threefs_data.prepare.process_filesystem import ProcessFileSystem

from tests.harness.local_files import LocalFiles


def travel(fs: LocalFiles) -> ProcessFileSystem:
    copy = pickle.loads(pickle.dumps(ProcessFileSystem(fs)))  # noqa: S301
    assert isinstance(copy, ProcessFileSystem)
    return copy


def test_tasks_of_a_process_share_one_connection() -> None:
    fs, other = LocalFiles("/process-file-system"), LocalFiles("/process-file-system/other")
    first = travel(fs)
    assert first.fs is not fs and first.fs is travel(fs).fs
    assert travel(other).fs is not first.fs and travel(other).fs == other
    assert ProcessFileSystem(fs).fs is fs, "in this process it is the caller's"
