from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threefs_client.async_file import AsyncFile
from threefs_client.async_filesystem import AsyncFileSystem
from threefs_client.data.fallocate import Allocation, allocate

from tests.harness.memory_cluster import MemoryFiles
from tests.harness.virtual_time import run_virtual
from threefs.errors import ConnectionLost, FileTooLarge, InvalidArgument, NoSpace, NotSupported, SessionLost

CHUNK = 64 << 10
PUNCH = Allocation.PUNCH_HOLE | Allocation.KEEP_LENGTH
KEEP_ZERO = Allocation.ZERO_RANGE | Allocation.KEEP_LENGTH
MODES = [Allocation.RESERVE, Allocation.KEEP_LENGTH, PUNCH, Allocation.ZERO_RANGE, KEEP_ZERO]


def play(scene: Callable[[MemoryFiles, AsyncFile], Awaitable[None]]) -> None:
    async def run() -> None:
        files = MemoryFiles(chunk_bytes=CHUNK)
        async with await AsyncFileSystem(files.context).open("/a", "wb+") as file:
            await scene(files, file)

    run_virtual(run())


async def content(file: AsyncFile) -> bytes:
    file.seek(0)
    return await file.read()


def numbers(files: MemoryFiles) -> list[int]:
    return sorted(chunk.number for chunk in files.storage.data)


def test_reserved_room_is_length_of_zeros_and_nothing_that_was_written_is_touched() -> None:
    async def scene(files: MemoryFiles, file: AsyncFile) -> None:
        await file.write(b"x" * 10)
        await file.allocate(5, 3 * CHUNK)
        assert file.length == files.meta.files[b"a"].length == 5 + 3 * CHUNK
        assert await content(file) == b"x" * 10 + bytes(3 * CHUNK - 5)
        assert numbers(files) == [0], "zeros need no chunks"
        await file.allocate(0, 7)
        assert file.length == 5 + 3 * CHUNK, "it never gets shorter"
        await file.allocate(0, 9 * CHUNK, Allocation.KEEP_LENGTH)
        assert file.length == 5 + 3 * CHUNK

    play(scene)


@pytest.mark.parametrize("mode", MODES)
def test_the_times_change_whatever_becomes_of_the_range(mode: Allocation) -> None:
    async def scene(files: MemoryFiles, file: AsyncFile) -> None:
        await file.write(b"x" * 10)
        await file.flush()
        told = [request for _, name, request in files.peers.meta_calls if name in ("Sync", "Reserve")]
        await file.allocate(0, 5, mode)
        calls = [request for _, name, request in files.peers.meta_calls if name in ("Sync", "Reserve")][len(told) :]
        assert any(getattr(request, "written", True) for request in calls)

    play(scene)


def test_a_punched_hole_loses_its_whole_chunks_and_keeps_what_lies_around_it() -> None:
    async def scene(files: MemoryFiles, file: AsyncFile) -> None:
        await file.write(b"x" * 5 * CHUNK)
        await file.allocate(CHUNK // 2, 3 * CHUNK, PUNCH)
        assert numbers(files) == [0, 3, 4]
        wanted = b"x" * (CHUNK // 2) + bytes(3 * CHUNK) + b"x" * (CHUNK + CHUNK // 2)
        assert await content(file) == wanted
        await file.allocate(4 * CHUNK, 100 * CHUNK, PUNCH)
        assert file.length == 5 * CHUNK, "a hole changes no length"
        assert await content(file) == wanted[: 4 * CHUNK] + bytes(CHUNK)

    play(scene)


def test_the_length_is_synced_before_the_last_chunk_is_removed() -> None:
    """Else a client that dies would leave a file as long as the chunks that remain."""

    async def scene(files: MemoryFiles, file: AsyncFile) -> None:
        await file.write(b"x" * 3 * CHUNK)
        await file.allocate(CHUNK, 2 * CHUNK, PUNCH)
        assert numbers(files) == [0]
        assert files.meta.files[b"a"].length == 3 * CHUNK

    play(scene)


def test_a_range_is_zeroed_with_and_without_growing() -> None:
    async def scene(files: MemoryFiles, file: AsyncFile) -> None:
        await file.write(b"x" * 100)
        await file.allocate(90, 20, KEEP_ZERO)
        assert await content(file) == b"x" * 90 + bytes(10)
        await file.allocate(80, 2 * CHUNK, Allocation.ZERO_RANGE)
        assert await content(file) == b"x" * 80 + bytes(2 * CHUNK)

    play(scene)


def test_an_answer_that_is_lost_changes_nothing() -> None:
    def lost(*_: object) -> ConnectionLost:
        return ConnectionLost("lost")

    async def scene(files: MemoryFiles, file: AsyncFile) -> None:
        await file.write(b"x" * 3 * CHUNK)
        await file.flush()
        files.peers.meta_faults = [(True, ConnectionLost("lost"))]
        await file.allocate(0, 4 * CHUNK)
        assert file.length == 4 * CHUNK
        files.storage.after = [lost, lost, lost, lost, lost, lost]
        await file.allocate(10, 3 * CHUNK - 20, PUNCH)
        assert await content(file) == b"x" * 10 + bytes(3 * CHUNK - 20) + b"x" * 10 + bytes(CHUNK)

    play(scene)


def test_unsupported_allocations_are_errors() -> None:
    async def scene(files: MemoryFiles, file: AsyncFile) -> None:
        await file.write(b"x")
        for mode in (Allocation.PUNCH_HOLE, Allocation.PUNCH_HOLE | Allocation.ZERO_RANGE, 8, 32):
            with pytest.raises(NotSupported):
                await file.allocate(0, 10, mode)
        for offset, length in ((0, 0), (0, -1), (-1, 10)):
            with pytest.raises(InvalidArgument):
                await file.allocate(offset, length)
        with pytest.raises(FileTooLarge):
            await file.allocate(1 << 62, 10)
        with pytest.raises(NoSpace):
            await file.allocate(0, 2 << 30)  # times three copies
        await file.allocate(0, 1 << 30)
        async with await AsyncFileSystem(files.context).open("/a") as reader:
            with pytest.raises(SessionLost):
                await allocate(reader.handle, 0, 10)

    play(scene)


@settings(deadline=None, max_examples=60)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["write", *MODES]),
            st.integers(0, 5 * CHUNK),
            st.integers(1, 3 * CHUNK),
        ),
        max_size=12,
    )
)
def test_a_file_is_what_a_plain_array_would_be(steps: list[tuple[str | Allocation, int, int]]) -> None:
    async def scene(files: MemoryFiles, file: AsyncFile) -> None:
        model = bytearray()
        for number, (step, offset, length) in enumerate(steps):
            grows = isinstance(step, str) or not step & Allocation.KEEP_LENGTH
            if grows and offset + length > len(model):
                model.extend(bytes(offset + length - len(model)))
            end = min(offset + length, len(model))
            if isinstance(step, str):
                part = bytes([number + 1]) * length
                model[offset:end] = part
                file.seek(offset)
                await file.write(part)
            else:
                if step & (Allocation.PUNCH_HOLE | Allocation.ZERO_RANGE) and offset < end:
                    model[offset:end] = bytes(end - offset)
                await file.allocate(offset, length, step)
        assert await content(file) == bytes(model)
        assert file.length == len(model)

    play(scene)
