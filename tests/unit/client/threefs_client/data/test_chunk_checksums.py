from dataclasses import replace

import pytest
from threefs_client.async_filesystem import AsyncFileSystem
from threefs_client.data.chunk_checksums import ChunkChecksum

from tests.harness.memory_cluster import MemoryFiles
from tests.harness.virtual_time import run_virtual
from threefs.checksums import crc32c
from threefs.errors import NotSupported
from threefs.ids import TableId
from threefs.wire import storage_pb2 as pb

CHUNK = 64 << 10


def test_each_chunk_has_its_number_length_and_checksum_and_holes_are_missing() -> None:
    async def run() -> None:
        fs = AsyncFileSystem(MemoryFiles(chunk_bytes=CHUNK).context)
        async with await fs.open("/a", "wb") as file:
            rows = [(file, number * CHUNK, bytes([number]) * CHUNK) for number in (*range(9), 11)]
            await fs.write_batch([*rows, (file, 12 * CHUNK, b"end")])
        await fs.write_file("/b", b"short")
        await fs.write_file("/empty", b"")
        many, few, none = await fs.chunk_checksums(["/a", "/b", "/empty"])
        assert [chunk.number for chunk in many] == [*range(9), 11, 12]
        assert many[3] == (3, CHUNK, crc32c(b"\3" * CHUNK))
        assert many[-1] == (12, 3, crc32c(b"end"))
        assert few == [ChunkChecksum(0, 5, crc32c(b"short"))] and none == []

    run_virtual(run())


def test_only_the_chains_are_asked_that_the_file_reaches() -> None:
    """A small checkpoint could not be saved while one chain of its stripe was not served."""

    async def run() -> None:
        files = MemoryFiles(chunk_bytes=CHUNK)
        fs = AsyncFileSystem(files.context)
        file = await fs.open("/a", "w+b")
        await file.write(b"x" * CHUNK)
        await file.flush()
        reader, whole = await fs.open("/a"), files.cluster.routing
        out = file.handle.layout.chain_of(whole.tables[TableId(1)], 1)
        unserved = replace(whole.chains[out], members=())
        files.cluster.routing = replace(whole, version=2, chains={**whole.chains, out: unserved})
        expected = [ChunkChecksum(0, CHUNK, crc32c(b"x" * CHUNK))]
        assert await fs.chunk_checksums(["/a", file, reader]) == [expected] * 3
        files.cluster.routing = replace(whole, version=3)
        await file.write(b"y" * 2 * CHUNK)
        await file.flush()
        assert [len(rows) for rows in await fs.chunk_checksums(["/a", file, reader])] == [3, 3, 3]

    run_virtual(run())


def test_a_service_that_is_too_old_is_named() -> None:
    async def run() -> None:
        files = MemoryFiles(chunk_bytes=CHUNK)
        fs = AsyncFileSystem(files.context)
        await fs.write_file("/a", b"x")
        serve = files.storage._serve

        def old(method: object, request: object, payload: bytes) -> tuple[object, bytes]:
            reply, out = serve(method, request, payload)  # type: ignore[arg-type]
            if isinstance(reply, pb.ListChunksReply):
                reply.ClearField("checksum")
            return reply, out

        files.storage._serve = old  # type: ignore[assignment, method-assign]
        with pytest.raises(NotSupported, match="upgrade the storage services"):
            await fs.chunk_checksums(["/a"])

    run_virtual(run())
