"""Processes with torch.distributed over gloo. Skipped where torch is not installed."""

import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")

WORLD = 3


def _main(rank: int, meeting: str, result: Connection) -> None:
    from threefs_checkpoint.torch_group import TorchGroup

    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=WORLD)
    group = TorchGroup()
    twin = group.twin()
    found = group.all_gather(b"x" * (rank * 1000)) + twin.all_gather(b"%d" % rank)
    others = [other for other in range(WORLD) if other != rank]
    incoming = {other: [memoryview(bytearray(1 << 20)), memoryview(bytearray(1))] for other in others}
    content = bytes([rank]) * (1 << 20)
    group.exchange({other: [memoryview(content), memoryview(b"%d" % other)] for other in others}, incoming)
    assert all(set(bytes(incoming[other][0])) == {other} for other in others)
    assert all(bytes(incoming[other][1]) == b"%d" % rank for other in others)
    assert group.all_gather(b"") == [b""] * WORLD
    assert group.from_rank_0(content if rank == 0 else b"") == bytes(1 << 20)
    result.send_bytes(b",".join(b"%d" % len(each) for each in found[:WORLD]) + b" " + b",".join(found[WORLD:]))
    group.close()
    group.close()
    assert dist.is_initialized()
    dist.destroy_process_group()
    twin.close()


@pytest.mark.slow
def test_messages_and_buffers(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    results, processes = [], []
    for rank in range(WORLD):
        ours, theirs = context.Pipe(duplex=False)
        processes.append(context.Process(target=_main, args=(rank, str(tmp_path / "meeting"), theirs)))
        processes[-1].start()
        theirs.close()
        results.append(ours)
    assert [result.recv_bytes() for result in results] == [b"0,1000,2000 0,1,2"] * WORLD
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
