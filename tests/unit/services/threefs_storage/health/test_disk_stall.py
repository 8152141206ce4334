from types import SimpleNamespace
from typing import Any

from structlog.testing import capture_logs
from threefs_storage.health.disk_stall import DiskStall

from tests.harness.clocks import SteppedClock


def target(number: int, *, waiting: int, ended: int, reading: int = 0, have_read: int = 0) -> Any:
    committer = SimpleNamespace(work=SimpleNamespace(waiting=waiting, ended=ended))
    reads = SimpleNamespace(waiting=reading, ended=have_read)
    return SimpleNamespace(target_id=number, engine=SimpleNamespace(committer=committer, reading=reads))


def test_changes_that_wait_and_none_that_ends_are_a_stall() -> None:
    clock = SteppedClock()
    stall = DiskStall(clock, 30.0)
    with capture_logs() as logs:
        assert not stall.is_over([target(1, waiting=2, ended=7)])
        clock.advance(29.0)
        assert not stall.is_over([target(1, waiting=3, ended=7)])
        clock.advance(1.0)
        assert stall.is_over([target(1, waiting=3, ended=7)])
        assert not stall.is_over([target(1, waiting=2, ended=8)]), "it goes on"
        clock.advance(29.0)
        assert not stall.is_over([target(1, waiting=2, ended=8)])
    assert [line["log_level"] for line in logs] == ["error", "warning"]


def test_a_slow_disk_and_an_idle_one_are_none() -> None:
    clock = SteppedClock()
    stall = DiskStall(clock, 30.0)
    for ended in range(10):
        assert not stall.is_over([target(1, waiting=100, ended=ended), target(2, waiting=0, ended=5)])
        clock.advance(29.0)
    assert not stall.is_over([target(1, waiting=0, ended=10)])
    clock.advance(100.0)
    assert not stall.is_over([target(1, waiting=1, ended=10)]), "it has only begun"


def test_one_target_that_waits_is_enough() -> None:
    clock = SteppedClock()
    stall = DiskStall(clock, 30.0)
    assert not stall.is_over([target(1, waiting=1, ended=0), target(2, waiting=1, ended=0)])
    clock.advance(30.0)
    assert stall.is_over([target(1, waiting=1, ended=4), target(2, waiting=1, ended=0)])


def test_reads_that_wait_are_a_stall_although_changes_end() -> None:
    clock = SteppedClock()
    stall = DiskStall(clock, 30.0)
    for ended in range(3):
        assert not stall.is_over([target(1, waiting=1, ended=ended, reading=1)])
        clock.advance(10.0)
    assert stall.is_over([target(1, waiting=1, ended=3, reading=2)])
    assert not stall.is_over([target(1, waiting=1, ended=3, reading=2, have_read=1)])
