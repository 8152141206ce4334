"""The URL of an empty directory on the shared cluster, for each test."""

import itertools
from collections.abc import Iterator

import pytest
from threefs_client import FileSystem

from tests.harness.cluster import LocalCluster

_NUMBERS = itertools.count()


@pytest.fixture
def path(fs: FileSystem) -> str:
    made = f"/torch/{next(_NUMBERS)}"
    fs.mkdir(made, parents=True)
    return made


@pytest.fixture
def url(cluster: LocalCluster, path: str) -> str:
    return f"{cluster.address}{path}"


@pytest.fixture(scope="session", autouse=True)
def connections_of_fsspec_end() -> Iterator[None]:
    yield
    from threefs_fsspec import ThreefsFileSystem

    for made in list(ThreefsFileSystem._cache.values()):
        made.client.close()
    ThreefsFileSystem.clear_instance_cache()
