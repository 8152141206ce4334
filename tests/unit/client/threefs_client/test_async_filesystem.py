import asyncio
from collections.abc import Awaitable, Callable

import pytest
from threefs_client.async_file import AsyncFile
from threefs_client.async_filesystem import AsyncFileSystem

from tests.harness.changing_files import answer_late
from tests.harness.memory_cluster import MemoryFiles
from tests.harness.virtual_time import run_virtual
from threefs.errors import ConnectionLost, InvalidArgument, IsADirectory, NoSpace, NotFound, OutcomeUnknown
from threefs.wire import meta_pb2 as pb

KIB = 1 << 10


def play(scene: Callable[[MemoryFiles, AsyncFileSystem], Awaitable[None]]) -> None:
    async def run() -> None:
        files = MemoryFiles()
        await scene(files, AsyncFileSystem(files.context))

    run_virtual(run())


def test_directories_do_not_open_as_files() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        files.meta.files[b"d"] = pb.Inode(inode=99, type=pb.DIRECTORY)
        with pytest.raises(IsADirectory):
            await fs.open("/d")
        with pytest.raises(IsADirectory):
            await fs.read_batch([("/d", 0, 1)])

    play(scene)


def test_a_batch_of_writes_is_few_requests() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        async with await fs.open("/a", "wb") as file:
            rows = [(file, number * 64 * KIB, bytes([number]) * 64 * KIB) for number in range(16)]
            assert await fs.write_batch(rows) == 16 * 64 * KIB
            assert len([1 for _, name, _ in files.storage.calls if name == "Write"]) == 2, "one per head"
        assert await fs.read_file("/a") == b"".join(data for _, _, data in rows)
        assert await fs.write_batch([]) == 0

    play(scene)


def test_buffered_bytes_of_a_file_are_part_of_batches() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        async with await fs.open("/a", "w+b") as file:
            await file.write(b"held")
            assert [bytes(view) for view in await fs.read_batch([(file, 0, 4)])] == [b"held"]
            await file.write(b"back")
            await fs.write_batch([(file, 4, b"B")])
            file.seek(0)
            assert await file.read(8) == b"heldBack"
            await fs.write_batch([(file, 0, b"H")])
            file.seek(0)
            assert await file.read(8) == b"HeldBack"

    play(scene)


def test_a_failed_batch_of_writes_makes_lengths_exact() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        file = await fs.open("/a", "wb")
        files.storage.before = [lambda *_: NoSpace()]
        with pytest.raises(NoSpace):
            await fs.write_batch([(file, 0, b"x"), (file, 64 * KIB, b"y")])
        await file.close()
        assert files.meta.files[b"a"].length in (1, 64 * KIB + 1)
        file = await fs.open("/a", "wb")
        files.storage.after = [lambda *_: OutcomeUnknown()] * 100_000
        with pytest.raises(OutcomeUnknown):
            await fs.write_batch([(file, 0, b"x")], timeout_s=0.02)

    play(scene)


def test_a_batch_of_writes_needs_open_files() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        await fs.write_file("/a", b"x")
        with pytest.raises(InvalidArgument, match="open for writing"):
            await fs.write_batch([("/a", 0, b"x")])

    play(scene)


def test_a_copy_whose_rename_is_not_confirmed_says_so() -> None:
    """It said that its temporary name does not exist, because the rename had been made."""

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        await fs.write_file("/a", b"")

        async def link(request: pb.LinkRequest) -> pb.InodeReply:
            return pb.InodeReply()

        async def rename(request: pb.RenameRequest) -> pb.InodeReply:
            raise ConnectionLost("its answer was lost")

        async def remove(request: pb.RemoveRequest) -> pb.RemoveReply:
            raise NotFound("it has another name by now")

        files.meta.__dict__.update(_link=link, _rename=rename, _remove=remove)
        with pytest.raises(OutcomeUnknown):
            await fs.copy("/a", "/b")

    play(scene)


@pytest.mark.parametrize("unnamed", [True, False])
def test_a_file_whose_open_is_cancelled_is_closed(unnamed: bool) -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        answer_late(files, 0.1)
        opening = asyncio.ensure_future(fs.create_unnamed("/") if unnamed else fs.open("/a", "wb"))
        await asyncio.sleep(0.05)
        assert files.meta.nameless if unnamed else files.meta.sessions
        opening.cancel()
        await asyncio.sleep(60)
        assert not files.meta.nameless and not files.meta.sessions - {b""}
        assert files.meta.precreated == unnamed and not fs.context.lease._holders

    play(scene)


@pytest.mark.parametrize("beside", ["first", "repeat"])
def test_a_file_without_a_name_is_found_again_beside_other_changes(beside: str) -> None:
    """In a batch its creation had another identity, so the repeat made a second file."""

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        async def create(path: str) -> None:
            async with await fs.open(path, "wb"):
                pass

        answer_late(files, 0.1)
        others = [asyncio.ensure_future(create(f"/{n}")) for n in range(3 * (beside == "first"))]
        opening = asyncio.ensure_future(fs.create_unnamed("/"))
        await asyncio.sleep(0.05)
        opening.cancel()
        others += [asyncio.ensure_future(create(f"/{n}")) for n in range(3 * (beside == "repeat"))]
        await asyncio.gather(*others)
        await asyncio.sleep(60)
        assert not files.meta.nameless and not files.meta.sessions - {b""} and not fs.context.lease._holders

    play(scene)


@pytest.mark.parametrize("error", [asyncio.CancelledError(), OutcomeUnknown("no answer")])
def test_a_copy_that_ends_while_it_gets_its_first_name_leaves_no_such_name(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        names: list[str] = []

        async def linked_and_ended(file: AsyncFile, name: str) -> None:
            names.append(name)
            raise error

        async def removed(name: str) -> None:
            names.remove(name)

        await fs.write_file("/a", b"content")
        monkeypatch.setattr(fs, "link_file", linked_and_ended)
        monkeypatch.setattr(fs, "unlink", removed)
        with pytest.raises(type(error)):
            await fs.copy("/a", "/b")
        assert names == []

    play(scene)
