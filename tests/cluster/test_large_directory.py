"""A directory with many entries: what a client and the meta service hold does not grow with it."""

import tracemalloc
from collections.abc import Iterator

import pytest
import threefs_client
from threefs_bench.cost_meter import resident_bytes

from tests.harness.cluster import LocalCluster

SMALL, LARGE = 5_000, 20_000
PAGE = 4096


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("cluster"), storage=1, replicas=1) as running:
        with running.connect(timeout_s=120.0) as fs:
            for size in (SMALL, LARGE):
                fs.mkdir(f"/{size}")
                made = fs.create_many([f"/{size}/{number:06}" for number in range(size)])
                assert not [one for one in made if isinstance(one, Exception)]
        yield running


@pytest.fixture
def fs(cluster: LocalCluster) -> Iterator[threefs_client.FileSystem]:
    with cluster.connect(timeout_s=120.0) as connected:
        yield connected


def test_all_entries_come_once_in_order_in_pages(fs: threefs_client.FileSystem) -> None:
    names: list[str] = []
    more = True
    while more:
        entries, more = fs._run(fs._async().list_page(f"/{LARGE}", names[-1] if names else "", with_attributes=True))
        assert len(entries) <= PAGE
        names += [entry.name for entry in entries]
    assert names == [f"{number:06}" for number in range(LARGE)]


@pytest.mark.parametrize("with_attributes", [False, True])
def test_listing_holds_a_page_however_large_the_directory_is(
    fs: threefs_client.FileSystem, with_attributes: bool
) -> None:
    def peak(size: int) -> int:
        tracemalloc.start()
        try:
            assert sum(1 for _ in fs.list(f"/{size}", with_attributes=with_attributes)) == size
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(SMALL)
    assert peak(LARGE) < 1.5 * peak(SMALL)


def test_the_service_keeps_nothing_of_listings(cluster: LocalCluster, fs: threefs_client.FileSystem) -> None:
    def once() -> int:
        assert sum(1 for _ in fs.list(f"/{LARGE}", with_attributes=True)) == LARGE
        return resident_bytes(cluster.meta.process.pid)

    for _ in range(3):
        before = once()
    for _ in range(5):
        after = once()
    assert after - before < LARGE * 200, "a listing's worth of memory"


def test_walking_holds_pages_too(fs: threefs_client.FileSystem) -> None:
    steps = [(top, len(directories), len(others)) for top, directories, others in fs.walk(f"/{LARGE}")]
    assert sum(others for _, _, others in steps) == LARGE
    assert all(others <= PAGE for _, _, others in steps) and len(steps) >= LARGE // PAGE
