from pathlib import Path

import numpy as np
import pytest
from threefs_checkpoint.checkpoint import save
from threefs_checkpoint.job_directory import FULL, MODEL, CheckpointDirectory, name_of, publish, read_index

from tests.harness.checkpoint_files import CheckpointFiles
from threefs.errors import Corrupt, InvalidArgument


@pytest.fixture
def fs(tmp_path: Path) -> CheckpointFiles:
    fs = CheckpointFiles(str(tmp_path))
    fs.mkdir("/c")
    return fs


def put(fs: CheckpointFiles, kind: str, *steps: int) -> None:
    for step in steps:
        save(fs, f"/c/{name_of(kind, step)}", {"a": np.full(9, step)}, chunk_bytes=64)


def test_checkpoints_are_listed_oldest_first_and_other_names_are_not(fs: CheckpointFiles) -> None:
    put(fs, FULL, 30, 5)
    put(fs, MODEL, 7)
    for name in ("saving-00-step-000000000040", "removing-00-step-000000000001", "notes", "step-1"):
        fs.mkdir(f"/c/{name}")
    found = CheckpointDirectory(fs, "/c/").published()
    assert [(each.step, each.kind, each.path) for each in found] == [
        (5, FULL, "/c/step-000000000005"),
        (7, MODEL, "/c/model-000000000007"),
        (30, FULL, "/c/step-000000000030"),
    ]
    assert [each.name for each in CheckpointDirectory(fs, "/c").published(MODEL)] == ["model-000000000007"]


def damage(fs: CheckpointFiles, path: str) -> None:
    content = bytearray(fs._at(path).read_bytes())
    content[-1] ^= 1
    fs._at(path).write_bytes(content)


def test_the_newest_valid_checkpoint_is_that_which_storage_has_whole(fs: CheckpointFiles) -> None:
    directory = CheckpointDirectory(fs, "/c")
    assert directory.newest_valid() is None and CheckpointDirectory(fs, "/nothing").newest_valid() is None
    put(fs, FULL, 1, 2, 3, 4)
    fs.remove("/c/step-000000000004/data-00000")
    damage(fs, "/c/step-000000000003/data-00000")
    damage(fs, "/c/step-000000000002/index")
    found = directory.newest_valid()
    assert found is not None and found[0].step == 1 and found[1].tensors["a"].shape == (9,)
    fs.write_file("/c/step-000000000009", b"a file of somebody")
    fs.mkdir("/c/step-000000000010/index", parents=True)
    assert directory.newest_valid() == found
    assert directory.newest_valid(damaged=["/c/step-000000000001"]) is None


def test_links_that_lead_nowhere_are_no_checkpoints(fs: CheckpointFiles) -> None:
    put(fs, FULL, 1)
    for name, target in ("step-000000000009", "nowhere"), ("step-000000000008", "step-000000000008"):
        fs._at(f"/c/{name}").symlink_to(target)
    found = CheckpointDirectory(fs, "/c").newest_valid()
    assert found is not None and found[0].step == 1


def test_room_is_made_behind_the_newest_valid_ones(fs: CheckpointFiles) -> None:
    put(fs, FULL, 1, 2, 3, 4)
    put(fs, MODEL, 1)
    damage(fs, "/c/step-000000000004/data-00000")
    left = [
        f"/c/saving-{'0f' * 8}-step-000000000005",
        f"/c/saving-{'0f' * 8}-model-000000000005",
        f"/c/removing-{'0f' * 8}-x",
    ]
    for path in left:
        fs.mkdir(path)
    others = ["removing-duplicates", "removing-0f-x", "saving-00-step-000000000005", f"saving-{'0f' * 8}-accounts"]
    for name in others:
        fs.mkdir(f"/c/{name}")
    CheckpointDirectory(fs, "/c").make_room(FULL, 1)
    assert fs.listing("/c") == sorted([*others, "model-000000000001", "step-000000000003", "step-000000000004"])
    begun = CheckpointDirectory(fs, "/c").begin(FULL, 9)
    CheckpointDirectory(fs, "/c").make_room(FULL, None)
    assert not fs._at(begun).exists() and fs.listing("/c")[0] == "model-000000000001"


def test_what_is_removed_loses_its_name_first(fs: CheckpointFiles) -> None:
    put(fs, FULL, 1)

    class Watching(CheckpointFiles):
        def remove(self, path: str, *, recursive: bool = False) -> None:
            assert path.startswith("/c/removing-") and path.endswith("-step-000000000001")
            super().remove(path, recursive=recursive)

    CheckpointDirectory(Watching(fs.root), "/c").remove("/c/step-000000000001")
    assert fs.listing("/c") == []


def test_a_checkpoint_gives_way_to_another_of_the_same_step(fs: CheckpointFiles) -> None:
    put(fs, FULL, 1)
    directory = CheckpointDirectory(fs, "/c")
    filled = directory.begin(FULL, 1)
    fs.write_file(f"{filled}/new", b"")
    assert directory.publish(filled, FULL, 1) == "/c/step-000000000001"
    assert fs.listing("/c/step-000000000001") == ["new"] and fs.listing("/c") == ["step-000000000001"]
    fs.mkdir("/c/x")
    publish(fs, "/c/x", "/c/y")
    assert "y" in fs.listing("/c")


def test_steps_and_indexes_have_bounds(fs: CheckpointFiles) -> None:
    for step in (-1, 10**12):
        with pytest.raises(InvalidArgument, match="from 0 to 999999999999"):
            name_of(FULL, step)
    fs.mkdir("/c/a")
    with fs._at("/c/a/index").open("wb") as file:
        file.truncate(300 << 20)
    with pytest.raises(Corrupt, match="more than an index may have"):
        read_index(fs, "/c/a")
