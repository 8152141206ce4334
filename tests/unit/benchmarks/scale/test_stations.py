from random import Random

import simpy

from benchmarks.scale.stations import Disk, Slots, Station


def test_a_station_does_one_thing_after_the_other() -> None:
    env = simpy.Environment()
    station = Station(env)
    assert [station.delay(2.0), station.delay(1.0)] == [2.0, 3.0]
    env.run(until=2.5)
    assert station.delay(1.0) == 1.5
    env.run(until=10.0)
    assert station.delay(1.0) == 1.0 and station.busy_s == 4.0
    env.run(until=12.0)
    assert station.busy_s == 5.0


def test_the_latency_of_a_disk_does_not_hold_up_the_next_block() -> None:
    env = simpy.Environment()
    disk = Disk(env, 100.0, 5.0, 0.0, Random(1))
    assert [disk.delay(100), disk.delay(100)] == [6.0, 7.0]
    env.run(until=6.0)
    assert disk.busy_s == 2.0


def test_slots_are_granted_in_the_order_of_the_announcements() -> None:
    env = simpy.Environment()
    slots = Slots(env, 1)
    assert slots.take_now() and not slots.take_now()
    first, second = slots.granted(), slots.granted()
    slots.give_back()
    assert first.triggered and not second.triggered
    slots.give_back()
    assert second.triggered and not slots.take_now()
    slots.give_back()
    assert slots.take_now(), "nobody waits any more"


def test_an_announced_answer_gets_a_slot_that_is_free() -> None:
    assert Slots(simpy.Environment(), 1).granted().triggered


def test_without_a_limit_every_answer_comes_at_once() -> None:
    slots = Slots(simpy.Environment(), None)
    assert all(slots.take_now() for _ in range(1000))
    slots.give_back()
