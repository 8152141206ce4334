"""Which chunks a target says that it holds."""

from pathlib import Path

import pytest
from threefs_storage import chunk_listing

from tests.harness.chain_harness import OFFLINE, SERVING, TestChain, chain_of, target_of
from threefs.checksums import crc32c
from threefs.errors import ChainChanged, NotServing
from threefs.ids import ChunkId
from threefs.rpc.methods import SCAN_CHUNKS
from threefs.wire import storage_pb2 as pb


async def ask(
    chain: TestChain, node: int, *, version: int = 0, behind: ChunkId | None = None, limit: int = 0
) -> pb.ScanChunksReply:
    request = pb.ScanChunksRequest(target=target_of(node), chain_version=version or chain.version, limit=limit)
    if behind is not None:
        request.behind, request.inode, request.index = True, behind.inode, behind.number
    return await chain.peers.call(chain[node].address, SCAN_CHUNKS, request, timeout_s=20)


async def test_pages_of_all_chunks_on_every_replica(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_listing, "MAX_ROWS", 2)
    async with chain_of(tmp_path, 2) as chain:
        chunks = [ChunkId(inode, number) for inode in (7, 9) for number in (0, 3)]
        for chunk in chunks:
            await chain.write(b"abc" * chunk.inode, chunk=chunk)
        await chain.send(chain.row(chunk=chunks[1], kind=pb.REMOVE))
        for node in (1, 2):
            first = await ask(chain, node, limit=99)
            assert (list(first.inode), list(first.index), first.more) == ([7], [0], True)
            assert (first.last_inode, first.last_index) == chunks[1]  # it is removed, but was looked at
            row = (first.version[0], first.length[0], first.checksum[0], first.pending[0])
            assert row == (1, 21, crc32c(b"abc" * 7), False)
            rest = await ask(chain, node, behind=chunks[1])
            assert (list(rest.inode), list(rest.index), rest.more) == ([9, 9], [0, 3], False)


async def test_only_the_serving_process_answers(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        with pytest.raises(ChainChanged):
            await ask(chain, 1, version=chain.version + 1)
        chain.change((1, SERVING), (2, OFFLINE))
        with pytest.raises(NotServing):
            await ask(chain, 2)
        await chain.peers.call(
            chain[2].address, SCAN_CHUNKS, pb.ScanChunksRequest(target=target_of(2), any_state=True), timeout_s=20
        )
