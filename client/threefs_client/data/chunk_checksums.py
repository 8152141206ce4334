"""The checksums of a file's chunks as the storage services have recorded them. No byte of the content is read.

The last serving target of each chain is asked, which knows what is committed. Every replica has confirmed the same
checksum before a write was acknowledged.
"""

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from threefs.background import cancel_and_wait
from threefs.cluster.chunk_client import ChunkClient
from threefs.errors import NotSupported
from threefs.ids import InodeId
from threefs.layout import chains_reached, chunk_count
from threefs_client.data.reads import ReadFile


class ChunkChecksum(NamedTuple):
    """The record that storage has of one chunk of a file."""

    number: int  # the chunk begins at byte `number` * chunk size of the file
    length: int  # bytes
    checksum: int  # CRC32C of these bytes


async def of_files(chunks: ChunkClient, files: Iterable[ReadFile], *, timeout_s: float) -> list[list[ChunkChecksum]]:
    """The chunks of each file, in the order of their numbers. A chunk that is a hole is missing."""
    asked = [asyncio.ensure_future(_of_file(chunks, file, timeout_s)) for file in files]
    try:
        return [await rows for rows in asked]
    finally:
        await cancel_and_wait(*asked)


async def _of_file(chunks: ChunkClient, file: ReadFile, timeout_s: float) -> list[ChunkChecksum]:
    """Only the chains on which its bytes can lie are asked: another one of its stripe may not be served."""
    layout, found = file.layout, []
    count, chains = chunk_count(layout.chunk_bytes, file.length), chains_reached(layout, file.length)
    async for chain, page in chunks.listing(layout, InodeId(file.inode), chains=chains, timeout_s=timeout_s):
        for chunk in page:
            if chunk.number >= count:
                continue  # the fence, or what a writer has not synced yet
            if chunk.checksum is None:
                raise NotSupported(
                    f"the storage service at the tail of chain {chain} does not tell the checksums of chunks, "
                    "because it is of an older version: upgrade the storage services first"
                )
            found.append(ChunkChecksum(chunk.number, chunk.length, chunk.checksum))
    return sorted(found)
