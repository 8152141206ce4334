import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from threefs_checkpoint.process_group import ProcessGroup

from threefs.errors import Unavailable

LARGE = 3 << 20  # more than a socket takes while nobody reads


@pytest.fixture
def meeting() -> Iterator[Path]:
    """A directory with a short path, as the names of sockets must be."""
    with tempfile.TemporaryDirectory(prefix="group-") as directory:
        yield Path(directory)


def _main(work: Callable[[ProcessGroup], bytes], rank: int, world: int, meeting: Path, result: Connection) -> None:
    try:
        result.send_bytes(work(ProcessGroup(rank, world, meeting, timeout_s=20)))
    except Unavailable as error:
        result.send_bytes(f"Unavailable: {error}".encode())


def run(world: int, meeting: Path, work: Callable[[ProcessGroup], bytes]) -> list[bytes]:
    context = multiprocessing.get_context("fork")
    pipes, processes = [], []
    for rank in range(world):
        ours, theirs = context.Pipe(duplex=False)
        processes.append(context.Process(target=_main, args=(work, rank, world, meeting, theirs)))
        processes[-1].start()
        theirs.close()
        pipes.append(ours)
    found = []
    for pipe in pipes:
        try:
            found.append(pipe.recv_bytes())
        except EOFError:
            found.append(b"ended")
    for process in processes:
        process.join(30)
    return found


def _gather(group: ProcessGroup) -> bytes:
    twin = group.twin()
    large = bytes([group.rank]) * LARGE
    assert [message[0] for message in group.all_gather(large)] == list(range(group.world))
    return b",".join(twin.all_gather(b"%d" % group.rank))


def test_every_rank_gets_every_message_however_large(meeting: Path) -> None:
    assert run(4, meeting, _gather) == [b"0,1,2,3"] * 4


def _exchange(group: ProcessGroup) -> bytes:
    others = [rank for rank in range(group.world) if rank != group.rank]
    content = bytes([group.rank]) * LARGE
    incoming = {other: [memoryview(bytearray(LARGE)), memoryview(bytearray(3))] for other in others}
    group.exchange(
        {other: [memoryview(content), memoryview(b"%d>%d" % (group.rank, other))] for other in others}, incoming
    )
    assert all(set(bytes(incoming[other][0])) == {other} for other in others)
    return b" ".join(bytes(incoming[other][1]) for other in others)


def test_buffers_go_from_rank_to_rank(meeting: Path) -> None:
    assert run(3, meeting, _exchange) == [b"1>0 2>0", b"0>1 2>1", b"0>2 1>2"]


def _one_dies(group: ProcessGroup) -> bytes:
    group.all_gather(b"")
    if group.rank == 1:
        os._exit(1)
    group.all_gather(b"")
    return b"nothing was noticed"


def test_a_rank_that_is_gone_is_named(meeting: Path) -> None:
    found = run(3, meeting, _one_dies)
    assert found[1] == b"ended"
    assert found[0].startswith(b"Unavailable: rank 1 has ended")
    assert found[2].startswith(b"Unavailable: rank ")


def _one_dies_and_one_stays(group: ProcessGroup) -> bytes:
    heard = group._directory / "heard"
    group.all_gather(b"")
    if group.rank == 1:
        os._exit(1)
    try:
        group.all_gather(b"")
    except Unavailable:
        if group.rank == 2:
            heard.touch()
        for _ in range(100):  # rank 0 has something to do yet before it ends
            if heard.exists():
                break
            time.sleep(0.1)
        with pytest.raises(Unavailable, match="has ended"):
            group.all_gather(b"")
    return b"heard" if heard.exists() else b"not heard"


def test_ranks_hear_of_one_that_is_gone_from_those_that_stay(meeting: Path) -> None:
    """Not after the timeout of the group, which is half an hour."""
    assert run(3, meeting, _one_dies_and_one_stays) == [b"heard", b"ended", b"heard"]


def _one_is_silent(group: ProcessGroup) -> bytes:
    named = group._directory / "named"
    if group.rank == 1:
        for _ in range(300):  # until rank 0 has noticed, however late: it would hear of the end of this process
            if named.exists():
                break
            time.sleep(0.1)
        return b"silent"
    group._timeout_s = 0.2
    try:
        group.all_gather(b"")
    finally:
        named.touch()
    return b"nothing was noticed"


def test_a_rank_that_sends_nothing_is_named(meeting: Path) -> None:
    assert run(2, meeting, _one_is_silent) == [b"Unavailable: rank 1 has sent nothing for 0 s", b"silent"]


def test_ranks_that_never_come_are_named(meeting: Path) -> None:
    with pytest.raises(Unavailable, match=r"rank 0 has waited 0 s for ranks \[1\]"):
        ProcessGroup(0, 2, meeting, timeout_s=0.05)
