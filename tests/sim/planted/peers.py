"""What peers do to each other: keys and proofs, limits, memory, frames."""

import dataclasses
from typing import Any

from threefs_meta import service as meta_service
from threefs_meta.access.credentials import Credentials

from tests.sim.planted.registry import plant_for, put
from threefs.env import local_sockets
from threefs.errors import Overloaded, Retry
from threefs.rpc import frames, grpc_proofs, handshake
from threefs.rpc.frame_stream import FrameStream
from threefs.rpc.handshake import ServerHandshake
from threefs.rpc.limits import Limits
from threefs.rpc.server import Server
from threefs.rpc.server_connection import ServerConnection
from threefs.rpc.window import Window
from threefs.wire import meta_pb2 as pb

_HANDSHAKE = "unit/threefs/rpc/test_handshake.py"
_MEMORY = "contract/test_memory_bounds.py"


def _believe(believed: bytes) -> None:
    is_proven = handshake._is_proven

    def lax(message: bytes, token: str, side: bytes, service: str, *before: bytes) -> bool:
        return side == believed or is_proven(message, token, side, service, *before)

    put(handshake, "_is_proven", lax)


@plant_for(f"{_HANDSHAKE}::test_an_impostor_hears_a_nonce_and_nothing_else")
def client_accepts_any_proof() -> None:
    """I21: whoever answers is taken for the service."""
    _believe(handshake._SERVER)


@plant_for(f"{_HANDSHAKE}::test_every_bit_of_the_exchange_is_covered_by_a_proof")
def server_skips_the_proof() -> None:
    """I21: whoever calls is taken for a program of the cluster."""
    _believe(handshake._CLIENT)


@plant_for(f"{_HANDSHAKE}::test_an_old_exchange_proves_nothing")
def nonce_is_used_again() -> None:
    """I21: what was said once proves as much the next time."""

    class Same:
        def token(self, size: int) -> bytes:
            return bytes(size)

    challenge = ServerHandshake._challenge

    def same(self: ServerHandshake, *args: Any) -> bytes:
        self._random = Same()  # type: ignore[assignment]
        return challenge(self, *args)

    put(ServerHandshake, "_challenge", same)


@plant_for(f"{_HANDSHAKE}::test_who_passes_messages_on_from_another_port_is_found_out")
def proofs_are_good_for_any_connection() -> None:
    """I21: what one port has said may be passed on from another one."""
    proof = handshake._proof
    put(handshake, "_proof", lambda token, side, service, *rest: proof(token, side, *rest))


@plant_for("unit/services/threefs_meta/test_service.py::test_who_names_nobody_is_nobody")
def missing_caller_is_trusted() -> None:
    """I21: a request that does not say for whom it is made may do everything."""

    put(meta_service, "NOBODY", pb.Caller(uid=0, gid=0))


@plant_for("unit/threefs/rpc/test_grpc_proofs.py::test_a_proof_passes_once")
def calls_of_the_control_plane_pass_again() -> None:
    """I21: a call that somebody has heard can be made once more."""
    admit = grpc_proofs.Gate.admit

    def forgetful(self: grpc_proofs.Gate, method: str, text: str) -> Any:
        proof = admit(self, method, text)
        for seen in self._seen.values():
            seen.clear()
        return proof

    put(grpc_proofs.Gate, "admit", forgetful)


@plant_for("unit/services/threefs_meta/access/test_permissions.py::test_no_operation_forgets_to_ask")
def owner_is_not_asked_for() -> None:
    """I21: anybody may change what only the owner may."""
    put(Credentials, "owns", lambda self, inode: True)


@plant_for("unit/threefs/env/test_local_sockets.py::test_a_socket_of_another_user_is_not_spoken_to")
def local_sockets_are_trusted() -> None:
    """I21: whoever has taken the name of a local socket is spoken to."""
    put(local_sockets.Owner, "is_trusted", property(lambda self: True))


@plant_for("unit/threefs/rpc/test_frame_stream.py::test_a_damaged_frame_ends_the_link_and_is_not_taken_for_another")
def frame_checksum_ignored() -> None:
    """What names a chunk, an offset or a version rests on the checksums of TCP alone."""

    def body_at(buffer: Any, offset: int, header: Any) -> bytes:
        begin = offset + frames.HEADER_BYTES
        return bytes(buffer[begin : begin + header.body_bytes])

    put(frames, "body_at", body_at)
    put(frames, "check_body", lambda header, header_checksum, body: None)


@plant_for(
    "unit/threefs/rpc/test_client_connection.py::test_calls_for_which_the_service_has_no_room_wait_for_their_turn"
)
def told_limits_ignored() -> None:
    """A caller sends more than the service takes."""
    put(Window, "_fits", lambda self, size, hops: True)


@plant_for("unit/threefs/rpc/test_window.py::test_calls_at_their_last_process_always_find_room_beside_those_that_go_on")
def calls_along_a_chain_fill_the_window() -> None:
    """Calls that wait for others leave no room for those that they wait for."""
    fits = Window._fits
    put(Window, "_fits", lambda self, size, hops: fits(self, size, 0))


@plant_for("contract/test_overload.py::test_a_write_that_the_service_refuses_for_load_is_tried_again")
def overload_is_final() -> None:
    """A write that was refused for load is not sent again."""
    put(Overloaded, "retry", Retry.NEVER)


@plant_for(f"{_MEMORY}::test_a_peer_that_reads_nothing_is_not_listened_to_any_more")
def answers_pile_up() -> None:
    """I20: a peer that takes no answers may go on asking."""
    put(FrameStream, "_must_pause", lambda self: False)


@plant_for(f"{_MEMORY}::test_writes_find_no_room_when_others_hold_it_all_but_what_services_pass_on_does")
def memory_has_no_bound() -> None:
    """I20: all connections together may make a service hold as much as they like."""
    put(Server, "make_room", lambda self, size, forward_flags=False: None)


@plant_for(f"{_MEMORY}::test_a_write_that_is_sent_in_part_only_keeps_its_memory_for_its_time")
def half_a_write_is_waited_for() -> None:
    """I20: a write of which only a part comes keeps its memory."""
    put(ServerConnection, "drop_late_calls", lambda self, now: None)


@plant_for(f"{_MEMORY}::test_a_peer_that_is_not_known_yet_may_say_little")
def strangers_may_say_much() -> None:
    """I20: a peer that has proven nothing may make a service hold a whole body."""
    put(Limits, "before_hello", lambda self: dataclasses.replace(self))
