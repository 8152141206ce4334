from random import Random

import pytest
import simpy

from benchmarks.scale.fabric import SEGMENT_BYTES, Fabric, Links

#: A segment takes one second on a link.
SECOND = Links(bytes_per_s=SEGMENT_BYTES, hosts_per_leaf=2, spines=1, room=2)


def fabric(links: Links = SECOND, ports: int = 4) -> Fabric:
    """Leaf 0 has the even ports, leaf 1 the odd ones."""
    return Fabric(simpy.Environment(), links, ports, Random(1))


def arrivals(net: Fabric, *messages: tuple[int, int, int]) -> list[float]:
    """When each message (source, target, segments) has arrived, if all are sent at once."""
    found: dict[int, float] = {}

    def wait(number: int, event: simpy.Event) -> None:
        assert event.callbacks is not None
        event.callbacks.append(lambda _: found.update({number: net.env.now}))

    for number, (source, target, segments) in enumerate(messages):
        wait(number, net.send(source, target, segments * SEGMENT_BYTES))
    net.env.run()
    return [found[number] for number in range(len(messages))]


def test_segments_follow_each_other_through_all_links() -> None:
    assert arrivals(fabric(), (0, 2, 1)) == [2], "one leaf: two links"
    assert arrivals(fabric(), (0, 1, 1)) == [4], "two leaves: four links"
    assert arrivals(fabric(), (0, 1, 3)) == [6], "each further segment takes a second more"


def test_a_host_sends_its_messages_in_turns() -> None:
    assert arrivals(fabric(), (0, 2, 3), (0, 2, 1)) == [5, 3]


def test_a_port_is_shared_by_its_senders() -> None:
    ends = arrivals(fabric(Links(SEGMENT_BYTES, 3, 1, 2), 6), (0, 4, 5), (2, 4, 5))
    assert max(ends) == 11, "ten segments through one link, behind the first link"


def test_what_waits_for_a_full_port_holds_up_what_is_behind_it() -> None:
    """Ports 0 and 2 send to 1. So the link between the leaves is full of what nobody takes, and 4's message waits."""
    links = Links(SEGMENT_BYTES, hosts_per_leaf=3, spines=1, room=1)
    alone = arrivals(fabric(links, 6), (4, 3, 4))
    crowded = arrivals(fabric(links, 6), (0, 1, 20), (2, 1, 20), (4, 3, 4))
    assert crowded[2] > 2 * alone[0]


def test_a_lossy_fabric_drops_and_sends_again_until_all_has_arrived() -> None:
    links = Links(SEGMENT_BYTES, hosts_per_leaf=8, spines=1, room=2, repeat_s=50.0)
    net = fabric(links, 8)
    ends = arrivals(net, *((source, 7, 4) for source in range(6)))
    assert net.dropped > 0 and max(ends) > 50


@pytest.mark.parametrize("repeat_s", [None, 0.5])
def test_every_message_arrives_and_no_link_is_faster_than_it_is(repeat_s: float | None) -> None:
    random = Random(7)
    net = fabric(Links(SEGMENT_BYTES, hosts_per_leaf=4, spines=2, room=2, repeat_s=repeat_s), 16)
    messages = [(random.randrange(8), random.randrange(8, 16), random.randrange(1, 6)) for _ in range(60)]
    ends = arrivals(net, *messages)
    for target in {target for _, target, _ in messages}:
        mine = [(size, end) for (_, to, size), end in zip(messages, ends, strict=True) if to == target]
        assert max(end for _, end in mine) > sum(size for size, _ in mine), "its link takes a second for each segment"
    assert net.dropped == 0 or repeat_s
