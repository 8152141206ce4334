import asyncio
from pathlib import Path

import pytest

from tests.harness.etcd import EtcdCluster
from tests.harness.postgres import PostgresServer
from threefs.env.random import RANDOM
from threefs.errors import InvalidSettings
from threefs.kv.engine_url import open_engine, parse, url_of


@pytest.mark.parametrize(
    ("text", "shown", "shared"),
    [
        ("rocks:///var/lib/x", "rocks:///var/lib/x", False),
        ("etcd://a:1,b:2,c", "etcd://a:1,b:2,c", True),
        ("etcd://me:secret@a:1/name", "etcd://me@a:1/name", True),
        ("etcd://[::1]:2379,[::1]", "etcd://[::1]:2379,[::1]", True),
        ("postgresql://me:secret@a,b:2/db?password=secret", "postgresql://me@a,b:2/db", True),
        ("postgres:///db", "postgres:///db", True),
    ],
)
def test_urls_are_understood_and_shown_without_what_is_secret(text: str, shown: str, shared: bool) -> None:
    url = parse(text)
    assert (str(url), url.shared) == (shown, shared)
    assert "secret" not in repr(url) + str(url)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not a text without"),
        ("mysql://me:secret@a", "not mysql://..."),
        ("rocks://relative", "an absolute directory"),
        ("etcd://", "an empty member"),
        ("etcd://a:1,,b", "an empty member"),
        ("etcd://a:x", "'a:x'"),
        ("etcd://a:0", "'a:0'"),
        ("etcd://a/b/c", "letters, digits"),
        ("etcd://a?colour=red", "'colour'"),
        ("etcd://a?cert=x", "together"),
    ],
)
def test_other_urls_are_refused_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        parse(text)
    assert reason in str(caught.value) and "secret" not in str(caught.value)


def test_a_file_that_is_missing_is_named() -> None:
    with pytest.raises(InvalidSettings, match="/nowhere"):
        asyncio.run(open_engine(parse("etcd://a?ca=/nowhere")))


async def use(text: str) -> None:
    for expected in (None, b"1"):
        engine = await open_engine(parse(text))
        tx = engine.begin()
        assert await tx.get(b"a") == expected
        tx.set(b"a", b"1")
        await tx.commit()
        await engine.close()


def test_the_embedded_engine_opens(tmp_path: Path) -> None:
    asyncio.run(use(str(url_of("", tmp_path / "kv"))))


def test_etcd_opens(etcd: EtcdCluster) -> None:
    asyncio.run(use(f"{etcd.url}/{RANDOM.token(4).hex()}"))


def test_postgresql_opens(postgres: PostgresServer) -> None:
    asyncio.run(use(postgres.schema(RANDOM.token(4).hex())))
