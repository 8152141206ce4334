"""A port on which Prometheus finds the metrics of a service: just enough HTTP for its scraper."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import structlog
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from threefs.env.net import Listener, Net, Stream
from threefs.errors import ThreefsError
from threefs.telemetry.process_metrics import ProcessMetrics

_PATH = b"/metrics"
_MAX_HEAD_BYTES = 16 << 10
_MAX_SCRAPES = 8
_TIMEOUT_S = 10.0

_LOG = structlog.get_logger()

Source = Callable[[], Awaitable[Iterable[Metric]]]


class MetricsPort:
    """Answers each scrape with the metrics of the process, and with those that `source` then returns."""

    def __init__(self, net: Net, source: Source) -> None:
        self.address = ""
        self.source = source
        self.process = ProcessMetrics()
        self._net = net
        self._listener: Listener | None = None
        self._scrapes: dict[_Scrape, None] = {}  # the oldest first

    async def start(self, host: str, port: int) -> None:
        """Raises Unavailable."""
        self._listener = await self._net.listen(host, port, self._accept)
        self.process.start()
        self.address = self._listener.address
        _LOG.info("metrics", address=self.address)

    def _accept(self, stream: Stream) -> None:
        if len(self._scrapes) >= _MAX_SCRAPES:  # a scraper sends its request at once
            silent = next((scrape for scrape in self._scrapes if not scrape.has_asked), None)
            if silent is None:
                stream.close()
                return
            silent.close()
        self._scrapes[_Scrape(self, stream)] = None

    def ended(self, scrape: "_Scrape") -> None:
        self._scrapes.pop(scrape, None)

    async def stop(self) -> None:
        self.process.stop()
        if self._listener is not None:
            self._listener.close()
        for scrape in list(self._scrapes):
            scrape.close()


class _Scrape:
    """One connection: it takes one request, answers it and closes."""

    def __init__(self, port: MetricsPort, stream: Stream) -> None:
        self._port = port
        self._stream = stream
        self._head = memoryview(bytearray(_MAX_HEAD_BYTES))
        self._length = 0
        self._rest = memoryview(b"")  # of the answer
        self._task: asyncio.Task[None] | None = None
        self._timeout = asyncio.get_running_loop().call_later(_TIMEOUT_S, self.close)
        stream.on_readable(self._readable)

    @property
    def has_asked(self) -> bool:
        return self._task is not None

    def _readable(self) -> None:
        try:
            count = self._stream.recv_into([self._head[self._length :]])
        except BlockingIOError:
            return
        except OSError:
            count = 0
        self._length += count
        head = bytes(self._head[: self._length])
        if b"\r\n\r\n" in head:
            self._stream.on_readable(None)
            self._task = asyncio.create_task(self._answer(head))
        elif not count or self._length == _MAX_HEAD_BYTES:
            self.close()

    async def _answer(self, head: bytes) -> None:
        self._rest = memoryview(await self._response(head))
        self._send()

    async def _response(self, head: bytes) -> bytes:
        method, path = [*head.split(b" ", 2), b""][:2]
        if method != b"GET" or path.partition(b"?")[0] != _PATH:
            return _http("404 Not Found", "text/plain", b"metrics are at /metrics\n")
        try:
            metrics = await self._port.source()
        except ThreefsError as error:
            return _http("503 Service Unavailable", "text/plain", f"{error}\n".encode())
        registry = CollectorRegistry()
        registry.register(_Collected([*self._port.process.collect(), *metrics]))
        return _http("200 OK", CONTENT_TYPE_LATEST, generate_latest(registry))

    def _send(self) -> None:
        try:
            while self._rest:
                self._rest = self._rest[self._stream.send([self._rest]) :]
        except BlockingIOError:
            self._stream.on_writable(self._send)
        except OSError:
            self.close()
        else:
            self.close()

    def close(self) -> None:
        self._timeout.cancel()
        if self._task is not None and not self._task.done() and self._task is not asyncio.current_task():
            self._task.cancel()
        self._stream.close()
        self._port.ended(self)


class _Collected:
    """Metrics in the form that a registry of Prometheus takes."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = list(metrics)

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _http(status: str, kind: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
