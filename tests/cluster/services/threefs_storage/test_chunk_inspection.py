"""What a target says of one chunk, whatever its state."""

from pathlib import Path

import pytest

from tests.harness.chain_harness import CHUNK, OFFLINE, SERVING, TestChain, chain_of, target_of
from threefs.checksums import crc32c
from threefs.errors import NotServing
from threefs.ids import ChunkId
from threefs.rpc.methods import INSPECT_CHUNK
from threefs.wire import storage_pb2 as pb


async def ask(chain: TestChain, node: int, chunk: ChunkId = CHUNK, target: int = 0) -> pb.InspectChunkReply:
    request = pb.InspectChunkRequest(target=target or target_of(node), inode=chunk.inode, index=chunk.number)
    return await chain.peers.call(chain[node].address, INSPECT_CHUNK, request, timeout_s=20)


async def test_every_member_says_what_it_has(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"abc")
        chain.change((1, SERVING), (2, OFFLINE))
        await chain.write(b"xyzw")
        ahead, behind = await ask(chain, 1), await ask(chain, 2)
        assert (ahead.committed.version, ahead.committed.length) == (2, 4)
        assert (behind.committed.version, behind.committed.checksum) == (1, crc32c(b"abc"))
        assert [event.what for event in behind.events][-1] == "committed" and behind.events[-1].version == 1
        assert ahead.chain_version == chain.version and not ahead.damaged and not ahead.HasField("pending")
        nothing = await ask(chain, 1, ChunkId(CHUNK.inode, 7))
        assert not nothing.HasField("committed") and not nothing.events
        await chain.send(chain.row(kind=pb.REMOVE))
        assert (await ask(chain, 1)).committed.removed
        chain[1].target.damaged[CHUNK] = None  # and nobody is told to repair it
        assert (await ask(chain, 1)).damaged
        with pytest.raises(NotServing):
            await ask(chain, 1, target=999)
