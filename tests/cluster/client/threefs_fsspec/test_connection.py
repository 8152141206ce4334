"""One connection per process and cluster, whichever loop, thread or process uses it."""

import asyncio
import json
import multiprocessing
import operator
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import fsspec
import pytest
from fsspec.config import conf, set_conf_env
from fsspec.implementations.dirfs import DirFileSystem
from threefs_fsspec import ThreefsFileSystem

from tests.harness.children import in_child
from tests.harness.cluster import LocalCluster
from threefs.errors import InvalidArgument, NotFound


@pytest.fixture
def settings() -> Iterator[dict[str, dict[str, object]]]:
    """The configuration of fsspec, as it was afterwards."""
    before = dict(conf)
    yield conf
    conf.clear()
    conf.update(before)


def test_a_url_or_a_setting_names_the_cluster(
    cluster: LocalCluster,
    threefs: ThreefsFileSystem,
    place: str,
    settings: dict[str, dict[str, object]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threefs.pipe_file(f"{place}/a", b"1")
    named, path = fsspec.url_to_fs(f"{cluster.address}{place}/a", timeout_s=30.0)
    assert (named, path) == (threefs, f"{place}/a") and named.client is threefs.client
    with fsspec.open(f"{cluster.address}{place}/a") as file:
        assert file.read() == b"1"
    with pytest.raises(NotFound, match="no cluster is named"):
        fsspec.filesystem("threefs")
    monkeypatch.setenv("THREEFS_ADDRESS", cluster.address)
    assert fsspec.url_to_fs(f"threefs://{place}/a")[0].cat_file(path) == b"1"
    monkeypatch.setenv("THREEFS_ADDRESS", "threefs://127.0.0.1:1")
    set_conf_env(settings, {"FSSPEC_THREEFS_ADDRESS": cluster.address, "FSSPEC_THREEFS_TIMEOUT_S": "30.0"})
    configured = fsspec.filesystem("threefs")
    assert configured == threefs and configured.cat_file(path) == b"1"
    with pytest.raises(InvalidArgument, match="unknown option"):
        fsspec.filesystem("threefs", nonsense=1)


def test_a_url_of_another_cluster_is_refused(cluster: LocalCluster, threefs: ThreefsFileSystem, place: str) -> None:
    """The files of this one were read, replaced and removed."""
    threefs.pipe_file(f"{place}/a", b"1")
    for url in (f"threefs://localhost:{cluster.address.rpartition(':')[2]}{place}/a", f"{cluster.address}{place}/a"):
        assert threefs.cat_file(url) == b"1"
    elsewhere = f"threefs://127.0.0.1:1{place}/a"
    calls = [threefs.cat_file, threefs.rm, threefs.info, partial(threefs.pipe_file, value=b"2"), threefs.open]
    calls.append(threefs._parent)
    for call in [*calls, lambda url: threefs.mv(f"{place}/a", url), lambda url: threefs.cat([url])]:
        with pytest.raises(InvalidArgument, match=r"is in the cluster threefs://127\.0\.0\.1:1, and this"):
            call(elsewhere)
    assert threefs.cat_file(f"{place}/a") == b"1"
    assert ThreefsFileSystem._strip_protocol(elsewhere) == f"{place}/a"
    assert ThreefsFileSystem._parent(elsewhere) == place == threefs._parent(f"{place}/a")
    assert threefs._parent("/a") == threefs._parent("/") == "/"


def test_a_closed_connection_is_made_again(cluster: LocalCluster, threefs: ThreefsFileSystem, place: str) -> None:
    first = ThreefsFileSystem(cluster.address, timeout_s=31.0)
    equal = ThreefsFileSystem(cluster.address, timeout_s=31.0, auto_mkdir=False)
    first.pipe_file(f"{place}/a", b"1")
    unfinished = first.open(f"{place}/unfinished", "wb")
    before = first.client
    before.close()
    assert before.closed and unfinished.closed
    assert ThreefsFileSystem(cluster.address, timeout_s=31.0) is first, "fsspec keeps it"
    assert first.cat_file(f"{place}/a") == equal.cat_file(f"{place}/a") == b"1"
    assert first.client is equal.client and first.client is not before
    with pytest.raises(ValueError, match="closed"):
        before.stat("/")
    first.client.close()


def test_it_travels_without_its_key(threefs: ThreefsFileSystem, place: str) -> None:
    threefs.pipe_file(f"{place}/a", b"1")
    unpickled = pickle.loads(pickle.dumps(threefs))  # noqa: S301
    copies = [unpickled, ThreefsFileSystem.from_json(threefs.to_json())]
    assert all(copy == threefs and copy.cat_file(f"{place}/a") == b"1" for copy in copies)
    assert len({threefs, *copies}) == 1
    secret = ThreefsFileSystem(threefs.address, token="secret")
    assert b"secret" not in pickle.dumps(secret) and "secret" not in json.dumps(secret.to_dict())
    assert threefs.unstrip_protocol("/a") == f"{threefs.address}/a"


def test_coroutines_may_be_awaited_on_any_loop(threefs: ThreefsFileSystem, place: str) -> None:
    free = ThreefsFileSystem(threefs.address, timeout_s=30.0, asynchronous=True)

    async def main() -> bytes:
        await free._pipe_file(f"{place}/a", b"1")
        return bytes(await free._cat_file(f"{place}/a"))

    assert asyncio.run(main()) == asyncio.run(main()) == b"1"
    below = DirFileSystem(place, threefs)  # it has the loop of fsspec
    assert below.cat_file("a") == b"1" and below.ls("", detail=False) == ["a"]
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(threefs.cat_file, [f"{place}/a"] * 100)) == {b"1"}


def test_a_forked_child_connects_anew(threefs: ThreefsFileSystem, place: str) -> None:
    threefs.pipe_file(f"{place}/a", b"parent")
    inherited = threefs.open(f"{place}/a")
    unfinished = threefs.open(f"{place}/unfinished", "wb")
    unfinished.write(b"of the parent")

    def work() -> None:
        assert threefs.cat_file(f"{place}/a") == inherited.read() == b"parent"
        threefs.pipe_file(f"{place}/b", b"child")
        assert ThreefsFileSystem(threefs.address, timeout_s=30.0).cat_file(f"{place}/b") == b"child"
        unfinished.close()
        assert not threefs.exists(f"{place}/unfinished")

    assert in_child(work) == 0
    inherited.close()
    unfinished.close()
    assert threefs.cat([f"{place}/b", f"{place}/unfinished"]) == {
        f"{place}/b": b"child",
        f"{place}/unfinished": b"of the parent",
    }


def test_a_spawned_process_connects_anew(threefs: ThreefsFileSystem, place: str) -> None:
    threefs.pipe_file(f"{place}/a", b"1")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(operator.methodcaller("cat_file", f"{place}/a"), (threefs,)) == b"1"
