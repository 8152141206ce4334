"""A file system for fsspec on the shared cluster, and a directory for each test."""

import itertools
from collections.abc import Iterator

import pytest
from threefs_fsspec import ThreefsFileSystem

from tests.harness.cluster import LocalCluster


@pytest.fixture(scope="session")
def threefs(cluster: LocalCluster) -> Iterator[ThreefsFileSystem]:
    made = ThreefsFileSystem(cluster.address, timeout_s=30.0)
    yield made
    made.client.close()
    ThreefsFileSystem.clear_instance_cache()


_NUMBERS = itertools.count()


@pytest.fixture
def place(threefs: ThreefsFileSystem) -> str:
    """The path of an empty directory."""
    path = f"/fsspec/{next(_NUMBERS)}"
    threefs.makedirs(path)
    return path
