import uuid

from threefs_client import FileSystem


def test_quotas_of_blocking_programs(fs: FileSystem) -> None:
    path = f"/administration/{uuid.uuid4().hex}"
    fs.mkdir(path, parents=True)
    fs.quotas.set(path, limit_bytes=1 << 40)
    found = fs.quotas.show(path)
    assert found is not None and (found.path, found.limit_bytes) == (path, 1 << 40)
    assert path in {quota.path for quota in fs.quotas.list()}
    fs.quotas.clear(path)
    assert fs.quotas.show(path) is None


def test_the_trash_of_blocking_programs(fs: FileSystem) -> None:
    path = f"/administration/{uuid.uuid4().hex}"
    fs.mkdir(path, parents=True)
    assert fs.trash.set(path, 3600).trash_s == fs.stat(path).trash_s == 3600
    fs.write_file(f"{path}/a", b"abc")
    fs.remove(f"{path}/a")
    (item,) = [item for item in fs.trash.list() if item.original == f"{path}/a"]
    assert fs.trash.restore(item.path) == f"{path}/a"
    assert fs.read_file(f"{path}/a") == b"abc"
    assert fs.trash.set(path, None).trash_s is None
    assert fs.trash.empty(uid=4_000_000_000) == 0
