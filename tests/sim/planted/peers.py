"""What peers do to each other: keys and proofs, limits, memory, frames."""

import dataclasses
import os
import socket
from typing import Any

from threefs_cli import safe_write
from threefs_meta import service as meta_service
from threefs_meta.access.credentials import Credentials
from threefs_meta.resolve.resolver import Turns

from tests.sim.planted.registry import plant_for, put
from threefs import cluster_key
from threefs.env import local_sockets, net
from threefs.errors import ConnectionIdle, Overloaded, Retry
from threefs.rpc import frames, grpc_proofs, handshake
from threefs.rpc.connection_reaper import ConnectionReaper
from threefs.rpc.frame_stream import FrameStream
from threefs.rpc.handshake import ServerHandshake
from threefs.rpc.limits import Limits
from threefs.rpc.send_window import SendWindow
from threefs.rpc.server import Server
from threefs.rpc.server_connection import ServerConnection
from threefs.wire import meta_pb2 as pb

_HANDSHAKE = "unit/threefs/rpc/test_handshake.py"
_MEMORY = "contract/test_memory_bounds.py"
_SOCKETS = "unit/threefs/env/test_local_sockets.py"
_SAFE_WRITE = "unit/client/threefs_cli/test_safe_write.py"


@plant_for("unit/threefs/rpc/test_server.py::test_a_request_of_before_a_suspension_is_not_taken")
def requests_outlive_a_suspension() -> None:
    """I9: a service that wakes up makes a change whose repeat was made elsewhere, and is forgotten."""
    put(ConnectionReaper, "is_late", lambda self, now: False)


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


@plant_for(f"{_HANDSHAKE}::test_a_relay_from_another_port_is_detected")
def proofs_are_good_for_any_connection() -> None:
    """I21: what one port has said may be passed on from another one."""
    proof = handshake._proof
    put(handshake, "_proof", lambda token, side, service, *rest: proof(token, side, *rest))


@plant_for("unit/services/threefs_meta/test_service.py::test_a_request_without_a_user_is_of_the_overflow_user")
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
    put(SendWindow, "_fits", lambda self, size, hops: True)


@plant_for(
    "unit/threefs/rpc/test_send_window.py::test_calls_at_their_last_process_always_find_room_beside_those_that_go_on"
)
def calls_along_a_chain_fill_the_window() -> None:
    """Calls that wait for others leave no room for those that they wait for."""
    fits = SendWindow._fits
    put(SendWindow, "_fits", lambda self, size, hops: fits(self, size, 0))


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


@plant_for(f"{_SOCKETS}::test_an_address_of_another_host_is_never_looked_for_here")
def services_of_other_hosts_are_looked_for_here() -> None:
    """I21: whoever takes the name of a service elsewhere is spoken to in its place."""
    put(local_sockets, "is_of_this_host", lambda ip: True)


@plant_for(f"{_SOCKETS}::test_a_taken_name_is_an_error_that_says_what_to_do")
def taken_name_of_a_socket_is_passed_over() -> None:
    """I21: a service starts beside somebody who has taken the name of its socket, and whom its clients will meet."""
    beside = net._listening_beside

    def lax(host: str, port: int) -> socket.socket:
        try:
            return beside(host, port)
        except OSError:
            other = socket.create_server(("127.0.0.1", 0))
            other.setblocking(False)
            return other

    put(net, "_listening_beside", lax)


@plant_for("unit/threefs/test_cluster_key.py::test_a_host_that_others_reach_needs_a_key[0.0.0.0]")
def service_without_a_key_is_open_to_all() -> None:
    """I21: other machines reach a service that asks nobody for a key."""
    put(cluster_key, "check_host", lambda host, key: None)


@plant_for(f"{_SAFE_WRITE}::test_no_directory_is_reached_through_a_link")
def copies_follow_links() -> None:
    """A link that one copy has made leads the next one out of its destination."""
    put(safe_write, "_DIRECTORY_FLAGS", safe_write._DIRECTORY_FLAGS & ~os.O_NOFOLLOW)


@plant_for(f"{_SAFE_WRITE}::test_permissions_are_those_of_the_file_less_the_umask")
def copies_keep_privileges() -> None:
    """A program of the cluster gets the rights of who has fetched it."""
    put(safe_write, "_PERMISSIONS", 0o7777)


@plant_for(
    "unit/services/threefs_meta/ops/test_stat.py::test_long_paths_come_to_turns_for_others_and_ordinary_ones_do_not"
)
def long_batches_give_no_turns() -> None:
    """One request keeps all others waiting for seconds."""
    put(Turns, "due", lambda self: False)


@plant_for(f"{_MEMORY}::test_connections_that_say_nothing_do_not_keep_others_out")
def silent_connections_keep_others_out() -> None:
    """I20: who only connects takes a place for as long as it likes."""
    init = Server.__init__

    def generous(self: Server, *args: Any, **more: Any) -> None:
        init(self, *args, **more)
        self._max_unidentified = self._max_connections

    put(Server, "__init__", generous)


@plant_for(f"{_MEMORY}::test_an_idle_connection_ends_and_the_next_call_makes_another")
def idle_connections_stay() -> None:
    """I20: connections of which nobody makes any use take their places for ever."""
    reason = ConnectionReaper._reason_to_evict

    def patient(self: ConnectionReaper, *args: Any) -> Any:
        found = reason(self, *args)
        return None if isinstance(found, ConnectionIdle) else found

    put(ConnectionReaper, "_reason_to_evict", patient)
