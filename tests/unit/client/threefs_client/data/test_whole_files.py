"""Whole files: first the content, then the name; and what is left behind when something fails."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from threefs_client.async_filesystem import AsyncFileSystem
from threefs_client.data import whole_files
from threefs_client.data.whole_files import NewFile

from tests.harness.memory_cluster import MemoryFiles
from tests.harness.virtual_time import run_virtual
from threefs.background import cancel_and_wait
from threefs.errors import (
    AlreadyExists,
    ConnectionLost,
    InvalidArgument,
    LayoutDiffers,
    NoSpace,
    QuotaExceeded,
    SessionLost,
    ThreefsError,
)


def play(scene: Callable[[MemoryFiles, AsyncFileSystem], Awaitable[None]], **options: Any) -> None:
    async def run() -> None:
        files = MemoryFiles(**options)
        await scene(files, AsyncFileSystem(files.context))
        await asyncio.sleep(5)  # what is given up is closed in the background
        assert not files.meta.sessions - {b""}
        held = len(files.meta.nameless)
        assert files.context.lease._holders == held == len(files.context.precreated), "nobody keeps what nobody uses"

    run_virtual(run())


def meta_calls(files: MemoryFiles) -> list[str]:
    return [name for _, name, _ in files.peers.meta_calls]


def writes(files: MemoryFiles) -> list[Any]:
    return [request for _, name, request in files.storage.calls if name == "Write"]


def test_a_new_file_costs_its_name_one_call_and_its_chunk_one_write() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        for number in range(127):
            await fs.write_file(f"/f{number}", b"content %d" % number)
        assert meta_calls(files).count("Publish") == 127 and meta_calls(files).count("Precreate") == 7
        assert len(meta_calls(files)) == 134 and len(writes(files)) == 127
        assert await fs.read_file("/f99") == b"content 99"

    play(scene)


def test_a_large_file_under_an_existing_name_is_sent_once() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        old, new = b"old" * (1 << 20), b"new" * (1 << 19)
        for content in (old, new):
            before = len(writes(files))
            await fs.write_file("/a", content)
            sent = sum(update.length for request in writes(files)[before:] for update in request.writes)
            assert sent == len(content)
            assert await fs.read_file("/a") == content
        with pytest.raises(AlreadyExists):
            await fs.write_file("/a", new, exclusive=True)

    play(scene)


def test_to_read_one_takes_a_call_to_the_metadata_and_one_to_storage() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        await fs.write_file("/a", b"content")
        files.peers.meta_calls.clear()
        assert await fs.read_file("/a") == b"content"
        assert meta_calls(files) == ["Open"] and len(files.reads()) == 1
        assert bytes((await fs.read_batch([("/a", 0, 7)]))[0]) == b"content"
        assert meta_calls(files) == ["Open", "BatchStat"] and len(files.reads()) == 2

    play(scene)


def test_many_together_take_few_messages() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        content = {f"/f{number}": bytes([number]) * (100 + number) for number in range(100)}
        assert await fs.write_many(content.items()) == [None] * 100
        assert meta_calls(files) == ["Precreate", "Batch"] * 2
        assert len(writes(files)) <= 2 * len({address for address, *_ in files.storage.calls})
        for path, data in content.items():
            assert await fs.read_file(path) == data
        assert await fs.write_many([]) == []

    play(scene)


def test_groups_are_as_large_as_a_call_precreates_and_have_a_bound_of_bytes() -> None:
    def new(size: int) -> NewFile:
        return NewFile("/a", memoryview(bytes(size)), 0o644, False, False)

    assert [len(group) for group in whole_files.groups([new(1)] * 150)] == [64, 64, 22]
    assert [len(group) for group in whole_files.groups([new(3 << 20)] * 5)] == [2, 2, 1]
    assert [len(group) for group in whole_files.groups([new(20 << 20), new(1), new(1)])] == [1, 2]


def test_an_existing_file_is_written_in_place_or_replaced() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        await fs.write_file("/a", b"long content", permissions=0o600)
        number = files.meta.files[b"a"].inode
        await fs.write_file("/a", b"short")
        assert (files.meta.files[b"a"].inode, files.meta.files[b"a"].mode) == (number, 0o600)
        assert await fs.read_file("/a") == b"short"
        assert await fs.write_many([("/a", b"again"), ("/b", b"new")]) == [None, None]
        assert files.meta.files[b"a"].inode == number and await fs.read_file("/a") == b"again"
        await fs.write_file("/a", b"other", replace=True)
        assert files.meta.files[b"a"].inode != number and await fs.read_file("/a") == b"other"
        assert await fs.write_many([("/a", b"last"), ("/c", b"new")], replace=True) == [None, None]
        assert await fs.read_file("/a") == b"last"

    play(scene)


def test_an_exclusive_file_is_a_new_one() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        await fs.write_file("/a", b"first", exclusive=True)
        with pytest.raises(AlreadyExists):
            await fs.write_file("/a", b"second", exclusive=True)
        assert await fs.read_file("/a") == b"first"
        with pytest.raises(InvalidArgument, match="choose one of the two"):
            await fs.write_file("/b", b"", exclusive=True, replace=True)

    play(scene)


def test_a_large_or_empty_file_is_whole_too() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        content = bytes(range(256)) * 1000
        await fs.write_file("/large", content)
        assert await fs.read_file("/large") == content and len(writes(files)) > 3
        await fs.write_file("/empty", b"")
        assert await fs.read_file("/empty") == b""

    play(scene, in_flight_bytes=64 << 10)


def test_content_that_cannot_be_written_gets_no_name() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        files.storage.before = [lambda *call: NoSpace("the disk is full")] * 100
        with pytest.raises(NoSpace):
            await fs.write_file("/a", b"content")
        errors = await fs.write_many([("/b", b"content"), ("/c", b"content")])
        assert all(isinstance(error, NoSpace) for error in errors)
        assert not files.meta.files and "Publish" not in meta_calls(files)

    play(scene)


@pytest.mark.parametrize("fault", [LayoutDiffers("another"), SessionLost("ended")])
def test_a_precreated_file_that_does_not_fit_is_replaced_by_another(fault: ThreefsError) -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        await fs.write_file("/first", b"content")
        files.meta.refusals = [fault]
        await fs.write_file("/a", b"content")
        assert await fs.read_file("/a") == b"content"
        files.meta.refusals = [fault]
        assert await fs.write_many([("/b", b"b content"), ("/c", b"c content")]) == [None, None]
        assert [await fs.read_file(name) for name in ("/b", "/c")] == [b"b content", b"c content"]
        files.meta.refusals = [fault] * 3
        with pytest.raises(type(fault)):
            await fs.write_file("/d", b"content")

    play(scene)


def test_another_refusal_is_the_error_of_that_file() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        files.meta.refusals = [QuotaExceeded("used up")]
        with pytest.raises(QuotaExceeded):
            await fs.write_file("/a", b"content")
        files.meta.refusals = [QuotaExceeded("used up")]
        errors = await fs.write_many([("/b", b"content"), ("/c", b"content")])
        assert isinstance(errors[0], QuotaExceeded) and errors[1] is None
        assert list(files.meta.files) == [b"c"]
        with pytest.raises(InvalidArgument):
            await fs.write_file("/d", b"content", permissions=0o77777)

    play(scene)


@pytest.mark.parametrize("after", [False, True])
def test_a_lost_answer_is_asked_for_again(after: bool) -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        await fs.write_file("/first", b"content")
        await fs.write_file("/second", b"content")  # leaves one ready
        files.peers.meta_faults.append((after, ConnectionLost("gone")))
        await fs.write_file("/a", b"content")
        assert await fs.read_file("/a") == b"content"

    play(scene)


@pytest.mark.parametrize("turns", range(0, 30, 3))
def test_a_cancelled_writer_leaves_the_whole_file_or_none(turns: int) -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        task = asyncio.ensure_future(fs.write_file("/a", b"content"))
        for _ in range(turns):
            await asyncio.sleep(0)
        await cancel_and_wait(task)
        await asyncio.sleep(5)
        if b"a" in files.meta.files:
            assert await fs.read_file("/a") == b"content"

    play(scene)


def test_names_of_paths_are_in_the_errors() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        files.meta.refusals = [AlreadyExists("inode 1000001 is there")]
        with pytest.raises(AlreadyExists, match="/a is there"):
            await fs._whole_file_writer()._write_new(NewFile("/a", memoryview(b"x"), 0o644, False, False))

    play(scene)
