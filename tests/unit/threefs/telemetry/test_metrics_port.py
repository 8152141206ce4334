import asyncio
from collections.abc import Awaitable, Callable, Iterable

import pytest
from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from threefs.env.net import RealNet
from threefs.errors import Unavailable
from threefs.telemetry.metrics_port import MetricsPort


async def answers() -> Iterable[Metric]:
    return [GaugeMetricFamily("threefs_load", "Of a test.", 2.5)]


async def cannot() -> Iterable[Metric]:
    raise Unavailable("the store is away")


def served(source: Callable[[], Awaitable[Iterable[Metric]]], *requests: bytes) -> list[str]:
    async def main() -> list[str]:
        port = MetricsPort(RealNet(), source)
        await port.start("127.0.0.1", 0)
        host, number = port.address.rsplit(":", 1)
        found = []
        for request in requests:
            reader, writer = await asyncio.open_connection(host, int(number))
            writer.write(request)
            writer.write_eof()
            await writer.drain()
            found.append((await reader.read()).decode())
            writer.close()
        await port.stop()
        return found

    return asyncio.run(main())


def test_a_scraper_gets_the_metrics_again_and_again() -> None:
    request = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
    for answer in served(answers, request, request):
        head, _, body = answer.partition("\r\n\r\n")
        assert head.startswith("HTTP/1.1 200 OK") and f"Content-Length: {len(body)}" in head
        found = {one.name: one.value for family in text_string_to_metric_families(body) for one in family.samples}
        assert found["threefs_load"] == 2.5 and found["threefs_build_info"] == 1


def test_whatever_else_comes_gets_an_answer_or_the_end_of_its_connection() -> None:
    requests = (b"GET / HTTP/1.1\r\n\r\n", b"POST /metrics HTTP/1.1\r\n\r\n", b"\r\n\r\n", b"\xff" * 16384, b"", b"GET")
    found = served(answers, *requests, b"GET /metrics HTTP/1.0\r\n\r\n")
    assert [answer.split(" ")[1] if answer else "" for answer in found] == ["404", "404", "404", "", "", "", "200"]


def test_metrics_that_cannot_be_had_are_an_error_of_the_scrape() -> None:
    (answer,) = served(cannot, b"GET /metrics HTTP/1.1\r\n\r\n")
    assert answer.startswith("HTTP/1.1 503") and "the store is away" in answer


async def test_a_port_in_use_is_reported() -> None:
    one, other = MetricsPort(RealNet(), answers), MetricsPort(RealNet(), answers)
    await one.start("127.0.0.1", 0)
    with pytest.raises(Unavailable, match="cannot listen"):
        await other.start("127.0.0.1", int(one.address.rsplit(":", 1)[1]))
    await other.stop()
    await one.stop()


def test_connections_that_say_nothing_do_not_keep_a_scraper_out() -> None:
    async def main() -> bytes:
        port = MetricsPort(RealNet(), answers)
        await port.start("127.0.0.1", 0)
        host, number = port.address.rsplit(":", 1)
        silent = [await asyncio.open_connection(host, int(number)) for _ in range(20)]
        reader, writer = await asyncio.open_connection(host, int(number))
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        answer = await reader.read()
        for _, each in [*silent, (reader, writer)]:
            each.close()
        await port.stop()
        return answer

    assert asyncio.run(main()).startswith(b"HTTP/1.1 200 OK")
