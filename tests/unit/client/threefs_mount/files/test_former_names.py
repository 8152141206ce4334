"""Which thread is sent back to look a name up again. What the kernel does is in tests/cluster/test_mount_names.py."""

import asyncio

import pytest
from threefs_mount.cache.kernel_attrs import KernelAttrCache
from threefs_mount.cache.validity import Validity
from threefs_mount.files.former_names import FormerNames

from tests.harness.clocks import SteppedClock
from threefs.errors import SessionLost
from threefs.wire import meta_pb2 as pb


class Bench:
    def __init__(self) -> None:
        self.clock = SteppedClock()
        self.attrs = KernelAttrCache(Validity(1.0))
        self.names = FormerNames(self.attrs, self.clock)

    def learn(self, moves: int, inode: int = 5) -> None:
        self.attrs.record(pb.Inode(inode=inode, change=moves, moves=moves), self.clock.monotonic())

    def look_up(self, thread: int, took_s: float) -> str:
        async def answer() -> str:
            self.clock.advance(took_s)
            return "an entry"

        return asyncio.run(self.names.looking_up(thread, answer()))

    def is_sent_back(self, thread: int, error: Exception | None = None, inode: int = 5) -> bool:
        try:
            with self.names.excluded(inode, thread):
                if error is not None:
                    raise error
        except SessionLost:
            return True
        return False


def test_each_thread_is_sent_back_once_for_each_use_of_a_name() -> None:
    bench = Bench()
    bench.learn(1)
    assert not bench.is_sent_back(7)
    bench.learn(2)
    for thread in (7, 8, 7):
        assert bench.is_sent_back(thread)
        assert not bench.is_sent_back(thread), "it has looked the name up again"
    bench.clock.advance(1.0)
    assert not bench.is_sent_back(7), "the kernel has not kept the former name for so long"


def test_a_thread_that_has_just_looked_again_is_not_sent_back_a_second_time() -> None:
    """The kernel looks only once. The metadata service found that the name is old, and by the new answer the mount
    hears of the move."""
    bench = Bench()
    bench.learn(1)
    assert bench.is_sent_back(7, SessionLost("the name belongs to another file"))
    bench.learn(2)
    assert not bench.is_sent_back(7) and bench.is_sent_back(8)


@pytest.mark.parametrize("error", [None, SessionLost("the name belongs to another file")])
def test_a_thread_that_did_not_come_back_is_sent_back_when_it_uses_another_name(error: Exception | None) -> None:
    """Its name led to another file. Long after that it emptied the file by the next name that this had lost."""
    bench = Bench()
    bench.learn(1)
    if error is None:
        bench.learn(2)
    assert bench.is_sent_back(7, error)
    bench.clock.advance(60.0)
    bench.learn(2)
    bench.learn(3)
    assert bench.is_sent_back(7)


@pytest.mark.parametrize("took_s", [2.0, 60.0])
def test_a_thread_comes_back_however_long_its_look_ups_take(took_s: float) -> None:
    """The kernel gives up after the second attempt, and the program got ESTALE for a right name."""
    bench = Bench()
    bench.learn(1)
    bench.learn(2)
    assert bench.is_sent_back(7)
    for _ in range(3):  # each part of a path
        assert bench.look_up(7, took_s) == "an entry"
        bench.clock.advance(0.3)
    bench.learn(2)
    bench.learn(3)
    assert not bench.is_sent_back(7)


def test_a_thread_that_goes_on_asking_for_something_else_is_not_on_its_way_for_ever() -> None:
    """Programs that walk over a tree spend nearly all of their time in questions."""
    bench = Bench()
    bench.learn(1)
    bench.learn(2)
    assert bench.is_sent_back(7)
    for _ in range(60):
        bench.look_up(7, 10.0)
    bench.learn(2)
    bench.learn(3)
    assert bench.is_sent_back(7)


@pytest.mark.parametrize(("thread", "idle_s", "looks_up"), [(7, 0.0, 8), (7, 1.0, 7), (0, 0.0, 0)])
def test_no_other_look_up_gives_a_thread_more_time(thread: int, idle_s: float, looks_up: int) -> None:
    """Neither that of another thread, nor one that begins when it should have come back. Threads of other PID
    namespaces cannot be told apart."""
    bench = Bench()
    bench.learn(1)
    bench.learn(2)
    assert bench.is_sent_back(thread)
    bench.clock.advance(idle_s)
    bench.look_up(looks_up, 1.0)
    bench.learn(2)
    bench.learn(3)
    assert bench.is_sent_back(thread)


@pytest.mark.parametrize(("thread", "most"), [(7, 16), (0, 4096)])
def test_only_so_much_is_kept_of_those_that_do_not_come_back(thread: int, most: int) -> None:
    """All threads of other PID namespaces have one number. The more of them were on their way, the longer took each."""
    bench = Bench()
    first, last = 100, 100 + most
    for inode in range(first, last + 1):
        assert bench.is_sent_back(thread, SessionLost("the name belongs to another file"), inode)
    for inode in (first, first + 1, last):
        bench.learn(1, inode)
        bench.learn(2, inode)
    assert bench.is_sent_back(8, inode=last), "it has a former name"
    assert not bench.is_sent_back(thread, inode=last) and not bench.is_sent_back(thread, inode=first + 1)
    assert bench.is_sent_back(thread, inode=first), "this one is forgotten"


def test_other_errors_send_nobody_back() -> None:
    bench = Bench()
    with pytest.raises(PermissionError):
        bench.is_sent_back(7, PermissionError())
    bench.learn(1)
    bench.learn(2)
    assert bench.is_sent_back(7)
