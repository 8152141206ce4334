"""A file that is written anew takes its name when it is complete."""

import asyncio
import os
import stat
from contextlib import suppress
from pathlib import Path

import pytest
from threefs_client import AsyncFile
from threefs_fsspec import ThreefsFileSystem, transfer

from tests.harness.children import in_child
from threefs.errors import NoSpace


def names(threefs: ThreefsFileSystem, place: str) -> list[str]:
    """With hidden ones."""
    return [entry.name for entry in threefs.client.list(place)]


def test_readers_see_the_old_file_or_the_new_one(threefs: ThreefsFileSystem, place: str) -> None:
    path = f"{place}/a"
    with threefs.open(path, "wb") as file:
        file.write(b"first")
        file.flush()
        assert names(threefs, place) == []
    assert threefs.cat_file(path) == b"first"
    with threefs.open(path, "wb") as file:
        file.write(b"second" * (1 << 20))
        assert threefs.cat_file(path) == b"first" and names(threefs, place) == ["a"]
    assert threefs.cat_file(path) == b"second" * (1 << 20) and names(threefs, place) == ["a"]


def test_a_program_that_dies_leaves_the_old_file(threefs: ThreefsFileSystem, place: str) -> None:
    threefs.pipe_file(f"{place}/a", b"old")

    def die() -> None:
        file = threefs.open(f"{place}/a", "wb")
        file.write(b"half of the new")
        file.flush()
        os._exit(7)

    assert in_child(die) == 7
    assert threefs.cat_file(f"{place}/a") == b"old" and names(threefs, place) == ["a"]


def test_the_permissions_of_the_old_file_are_kept(threefs: ThreefsFileSystem, place: str) -> None:
    path = f"{place}/secret"
    threefs.pipe_file(path, b"1", permissions=0o600)
    threefs.pipe_file(path, b"2")
    assert stat.S_IMODE(threefs.info(path)["mode"]) == 0o600
    with threefs.open(path, "wb") as file:
        file.write(b"3")
    assert stat.S_IMODE(threefs.info(path)["mode"]) == 0o600
    with threefs.open(path, "wb", permissions=0o640) as file:
        file.write(b"4")
    assert stat.S_IMODE(threefs.info(path)["mode"]) == 0o640


def test_a_new_file_may_be_demanded(threefs: ThreefsFileSystem, place: str) -> None:
    with threefs.open(f"{place}/a", "xb") as file:
        assert names(threefs, place) == ["a"]  # it excludes others from now on
        file.write(b"first")
    with pytest.raises(FileExistsError):
        threefs.open(f"{place}/a", "xb")
    with pytest.raises(FileExistsError):
        threefs.pipe_file(f"{place}/a", b"second", mode="create")
    assert threefs.cat_file(f"{place}/a") == b"first"


def test_directories_are_not_replaced_and_missing_ones_are_made(threefs: ThreefsFileSystem, place: str) -> None:
    with pytest.raises(IsADirectoryError):
        threefs.open(place, "wb")
    with pytest.raises(IsADirectoryError):
        threefs.pipe_file(place, b"")
    with threefs.open(f"{place}/x/y/z", "wb") as file:
        file.write(b"1")
    assert threefs.cat_file(f"{place}/x/y/z") == b"1"
    strict = ThreefsFileSystem(threefs.address, auto_mkdir=False, timeout_s=30.0)
    with pytest.raises(FileNotFoundError):
        strict.open(f"{place}/none/a", "wb")


def test_a_transaction_shows_its_files_at_its_end_or_never(threefs: ThreefsFileSystem, place: str) -> None:
    threefs.pipe_file(f"{place}/a", b"old")
    with threefs.transaction:
        with threefs.open(f"{place}/a", "wb") as file:
            file.write(b"new")
        assert file.closed
        with pytest.raises(ValueError, match="closed"):
            file.write(b"more")
        threefs.pipe_file(f"{place}/b", b"piped")
        with threefs.open(f"{place}/c", "x") as text:
            text.write("text")
        assert threefs.cat_file(f"{place}/a") == b"old" and names(threefs, place) == ["a"]
    assert threefs.cat([f"{place}/{name}" for name in "abc"]) == {
        f"{place}/a": b"new",
        f"{place}/b": b"piped",
        f"{place}/c": b"text",
    }
    with suppress(KeyError), threefs.transaction:
        with threefs.open(f"{place}/a", "wb") as file:
            file.write(b"never")
        threefs.pipe_file(f"{place}/d", b"never")
        raise KeyError
    assert threefs.cat_file(f"{place}/a") == b"new" and names(threefs, place) == ["a", "b", "c"]
    with threefs.transaction, pytest.raises(OSError, match="in place"):
        threefs.open(f"{place}/a", "ab")


def test_a_file_for_coroutines_takes_part_in_no_transaction(threefs: ThreefsFileSystem, place: str) -> None:
    """It took its name when it was closed, and kept it when the block failed."""
    threefs.pipe_file(f"{place}/a", b"old")

    async def open_both() -> None:
        async with await threefs.open_async(f"{place}/a", "rb") as file:
            assert await file.read() == b"old"
        await threefs.open_async(f"{place}/b", "wb")

    with threefs.transaction, pytest.raises(OSError, match="no transaction"):
        asyncio.run(open_both())


def test_a_transaction_defers_copies_too(threefs: ThreefsFileSystem, place: str, tmp_path: Path) -> None:
    threefs.pipe_file(f"{place}/a", b"old")
    (tmp_path / "small").write_bytes(b"small")
    (tmp_path / "large").write_bytes(b"x" * (transfer.WHOLE_BYTES + 1))
    wanted = {
        "a": b"old",
        "copy": b"old",
        "large": b"x" * (transfer.WHOLE_BYTES + 1),
        "small": b"small",
        "touched": b"",
    }

    def copy_in() -> None:
        for name in ("small", "large"):
            threefs.put_file(str(tmp_path / name), f"{place}/{name}")
        threefs.cp_file(f"{place}/a", f"{place}/copy")
        threefs.touch(f"{place}/touched", truncate=False)
        assert names(threefs, place) == ["a"]

    with suppress(KeyError), threefs.transaction:
        copy_in()
        raise KeyError
    assert names(threefs, place) == ["a"]
    with threefs.transaction:
        copy_in()
    assert {name: threefs.cat_file(f"{place}/{name}") for name in names(threefs, place)} == wanted


def test_a_touch_in_a_transaction_takes_the_place_of_nothing(threefs: ThreefsFileSystem, place: str) -> None:
    """It emptied what the same transaction had written, and what others made before its end."""
    with threefs.transaction:
        threefs.pipe_file(f"{place}/a", b"written")
        threefs.touch(f"{place}/a", truncate=False)
        threefs.touch(f"{place}/b", truncate=False)
        threefs.client.write_file(f"{place}/b", b"of another program")
    assert threefs.cat_file(f"{place}/a") == b"written"
    assert threefs.cat_file(f"{place}/b") == b"of another program" and names(threefs, place) == ["a", "b"]


def test_a_file_of_a_transaction_is_stored_at_once(
    threefs: ThreefsFileSystem, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a commit finds wrong comes behind files that have their names already."""

    async def full(file: AsyncFile) -> None:
        raise NoSpace("full")

    with threefs.transaction:
        with monkeypatch.context() as patched:
            patched.setattr(AsyncFile, "flush", full)
            with pytest.raises(OSError, match="full"):
                threefs.pipe_file(f"{place}/a", b"1")
        threefs.pipe_file(f"{place}/b", b"2")
    assert names(threefs, place) == ["b"]


def test_what_could_not_be_written_is_no_part_of_a_transaction(threefs: ThreefsFileSystem, place: str) -> None:
    with threefs.transaction:
        with pytest.raises(FileNotFoundError):
            threefs.cp_file(f"{place}/none", f"{place}/copy")
        with pytest.raises(OSError, match="bytes-like"):
            threefs.pipe_file(f"{place}/a", "text")
    assert names(threefs, place) == []
