"""Fixtures for everyone."""

import os
import signal
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings
from threefs_client import FileSystem, keyring

from tests.harness.cluster import LocalCluster
from tests.harness.etcd import EtcdCluster, needs_etcd
from tests.harness.postgres import PostgresServer, needs_postgres
from threefs.env.buffers import POISON_VARIABLE

#: I14 is checked in all tests, and in the programs that they start.
os.environ[POISON_VARIABLE] = "1"

#: A machine may be slow: no example is judged by its time.
settings.register_profile("threefs", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("threefs")


@pytest.fixture(autouse=True)
def signals_as_they_were() -> Iterator[None]:
    """Children that a later test forks must end when they are told to."""
    yield
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """A test that captures logs leaves structlog configured: clients would write to standard output from then on."""
    yield
    if structlog.is_configured():
        structlog.reset_defaults()


@pytest.fixture(scope="module", autouse=True)
def no_keys_of_others(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What `threefs up` notes is neither that of the person who runs the tests, nor of a cluster of another module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(keyring.DATA_VARIABLE, str(tmp_path_factory.mktemp("data-home")))
        for name in (keyring.TOKEN_VARIABLE, keyring.FILE_VARIABLE, keyring.CLUSTER_VARIABLE):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One manager, one meta service, three storage processes. Shared: do not kill any of them."""
    with LocalCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="session")
def fs(cluster: LocalCluster) -> Iterator[FileSystem]:
    """A connection to the shared cluster; use a directory of your own."""
    with cluster.connect() as connected:
        yield connected


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    """Three members. Shared: use a name of your own, and kill none of them."""
    needs_etcd()
    with EtcdCluster(tmp_path_factory.mktemp("etcd")) as running:
        yield running


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """Shared: use a schema of your own, and kill nothing."""
    needs_postgres()
    with PostgresServer() as running:
        yield running
