import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from threefs_cli.main import main

from tests.harness.etcd import EtcdCluster
from tests.harness.postgres import PostgresServer
from threefs.env.random import RANDOM
from threefs.kv.engine_url import open_engine, parse


def run(*arguments: str, code: int = 0, **environment: str) -> str:
    result = CliRunner().invoke(main, ["meta", *arguments], env=environment)
    assert result.exit_code == code, result.output
    return result.output


async def put(url: str) -> None:
    engine = await open_engine(parse(url))
    tx = engine.begin()
    for number in range(700):
        tx.set(b"key%04d" % number, b"v" * number)
    await tx.commit()
    await engine.close()


@pytest.fixture
def source(tmp_path: Path) -> str:
    url = f"rocks://{tmp_path}/source"
    asyncio.run(put(url))
    return url


def test_a_store_goes_round_all_engines(
    source: str, tmp_path: Path, etcd: EtcdCluster, postgres: PostgresServer
) -> None:
    stores = [
        source,
        f"{etcd.url}/{RANDOM.token(4).hex()}",
        postgres.schema(RANDOM.token(4).hex()),
        f"rocks://{tmp_path}/back",
    ]
    assert "700 records" in run("dump", "--engine", source, str(tmp_path / "0"))
    for number, url in enumerate(stores[1:]):
        assert "700 records" in run("load", str(tmp_path / str(number)), THREEFS_ENGINE=url)
        found = json.loads(run("dump", "--json", "--engine", url, str(tmp_path / str(number + 1))))
        assert found["records"] == 700
        assert (tmp_path / "0").read_bytes() == (tmp_path / str(number + 1)).read_bytes()
    assert (tmp_path / "0").stat().st_mode & 0o777 == 0o600


def test_what_is_there_is_not_overwritten(source: str, tmp_path: Path) -> None:
    file = tmp_path / "dump"
    run("dump", "--engine", source, str(file))
    assert "exists already" in run("dump", "--engine", source, str(file), code=1)
    assert "not empty" in run("load", "--engine", source, str(file), code=1)


def test_a_damaged_file_is_named(source: str, tmp_path: Path) -> None:
    file = tmp_path / "dump"
    run("dump", "--engine", source, str(file))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert f"{file}: record" in run("load", "--engine", f"rocks://{tmp_path}/fresh", str(file), code=1)
    assert "is empty" in run("dump", "--engine", f"rocks://{tmp_path}/fresh", str(tmp_path / "empty"), code=1)
    assert not (tmp_path / "empty").exists()


def test_a_dump_of_a_mistyped_path_is_an_error_that_changes_nothing(tmp_path: Path) -> None:
    text = run("dump", "--engine", f"rocks://{tmp_path}/data/kw", str(tmp_path / "dump"), code=1)
    assert f"no store in {tmp_path}/data/kw" in text
    assert list(tmp_path.iterdir()) == []


def test_a_dump_that_failed_leaves_nothing(tmp_path: Path) -> None:
    text = run("dump", "--engine", "etcd://u:secret@127.0.0.1:1", str(tmp_path / "dump"), code=1)
    assert "127.0.0.1:1" in text and "secret" not in text
    assert "not mysql://..." in run("dump", "--engine", "mysql://u:secret@a", str(tmp_path / "dump"), code=1)
    assert list(tmp_path.iterdir()) == []
    assert "THREEFS_ENGINE" in run("load", str(tmp_path / "dump"), code=2)
    both = ("--dir", str(tmp_path), "--engine", f"rocks://{tmp_path}")
    assert "give one of them" in run("dump", *both, str(tmp_path / "dump"), code=2)
