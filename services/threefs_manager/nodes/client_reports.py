"""The configurations that clients and mounts run with, as they say when they ask for the routing.

A client asks all the time, and is forgotten when its connection has ended or when it was silent for T. It proves
nothing of what it says, so only so much of it is kept.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from threefs.env.clock import Clock
from threefs.wire import manager_pb2 as pb

MAX_CLIENTS = 4096
MAX_NAME_CHARS = 255
CLIENT_ID_BYTES = 16
_LOOK_S = 1.0  # while there are too many
_MAX_KEYS = 16  # more than clients have
_MAX_WORD_CHARS = 64
_MAX_REASON_CHARS = 255


@dataclass(frozen=True, slots=True)
class _Client:
    report: pb.ClientReport
    heard_at: float


class ClientReports:
    def __init__(self, clock: Clock) -> None:
        self.are_more = False  # than can be kept
        self._clock = clock
        self._looked_at = clock.monotonic()  # for those that were silent
        self._clients: dict[bytes, _Client] = {}

    @contextmanager
    def asking(self, request: pb.GetRoutingRequest, lease_s: float) -> Iterator[None]:
        """While a client waits for the answer to this request."""
        if not request.HasField("client") or len(request.client.client_id) != CLIENT_ID_BYTES:
            yield
            return
        client_id = request.client.client_id
        self._take(request.client, lease_s)
        taken = self._clients.get(client_id)
        try:
            yield
        except asyncio.CancelledError:  # its connection has ended, as a rule
            if self._clients.get(client_id) is taken:  # else it asks over another one already
                self._clients.pop(client_id, None)
            raise

    def _take(self, report: pb.ClientReport, lease_s: float) -> None:
        if report.client_id not in self._clients and self._is_full(lease_s):
            self.are_more = True
            return
        self._clients[report.client_id] = _Client(_cut(report), self._clock.monotonic())

    def _is_full(self, lease_s: float) -> bool:
        if len(self._clients) >= MAX_CLIENTS and self._clock.monotonic() - self._looked_at >= _LOOK_S:
            self._forget_silent(lease_s)
        return len(self._clients) >= MAX_CLIENTS

    def heard(self, lease_s: float) -> list[pb.ClientReport]:
        """Of those that were not silent for T, by their names."""
        self._forget_silent(lease_s)
        return sorted((client.report for client in self._clients.values()), key=lambda report: report.name)

    def _forget_silent(self, lease_s: float) -> None:
        now = self._looked_at = self._clock.monotonic()
        self._clients = {
            client_id: client for client_id, client in self._clients.items() if now - client.heard_at < lease_s
        }
        self.are_more = self.are_more and len(self._clients) >= MAX_CLIENTS

    def clear(self) -> None:
        self._clients.clear()
        self.are_more = False


def _cut(report: pb.ClientReport) -> pb.ClientReport:
    """What is kept of it, in memory of its own."""
    configuration = report.configuration
    return pb.ClientReport(
        client_id=report.client_id,
        name=report.name[:MAX_NAME_CHARS],
        configuration=pb.ConfigurationReport(
            version=configuration.version,
            made_ns=configuration.made_ns,
            keys=[
                pb.KeyReport(
                    name=key.name[:_MAX_WORD_CHARS],
                    value=key.value[:_MAX_WORD_CHARS],
                    state=key.state,
                    reason=key.reason[:_MAX_REASON_CHARS],
                )
                for key in configuration.keys[:_MAX_KEYS]
            ],
        ),
    )
