import socket

import pytest

from threefs.env import packet_marks
from threefs.env.packet_marks import MAX_DSCP, MAX_PRIORITY, PacketMark

_PLACES = {
    socket.AF_INET: (socket.IPPROTO_IP, socket.IP_TOS),
    socket.AF_INET6: (socket.IPPROTO_IPV6, socket.IPV6_TCLASS),
}


@pytest.mark.parametrize("family", _PLACES)
@pytest.mark.parametrize("dscp", [0, 1, 46, MAX_DSCP])
def test_the_kernel_marks_packets_with_the_code_point(family: socket.AddressFamily, dscp: int) -> None:
    with socket.socket(family) as sock:
        packet_marks.apply(sock, PacketMark(dscp, 4))
        assert sock.getsockopt(*_PLACES[family]) >> 2 == dscp
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY) == 4


def test_the_priority_is_the_one_that_was_named_whatever_the_code_point_implies() -> None:
    for priority in range(MAX_PRIORITY + 1):
        with socket.socket() as sock:
            packet_marks.apply(sock, PacketMark(46, priority))
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY) == priority


def test_a_refused_mark_is_no_failure() -> None:
    sock = socket.socket(socket.AF_UNIX)  # has no code point
    packet_marks.apply(sock, PacketMark(10, 2))
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY) == 2
    sock.close()
    packet_marks.apply(sock, PacketMark(10, 2))  # and now not even a descriptor
