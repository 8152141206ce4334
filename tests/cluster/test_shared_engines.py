"""Managers and meta services on one etcd, or one PostgreSQL, that lose parts of it and each other under load."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.etcd import EtcdCluster, needs_etcd
from tests.harness.namespace_audit import audit_store
from tests.harness.postgres import PostgresServer, needs_postgres
from tests.harness.shared_cluster import Load, SharedCluster


@pytest.fixture(scope="module")
def mortal_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    """Its members are killed, and started again."""
    needs_etcd()
    with EtcdCluster(tmp_path_factory.mktemp("etcd")) as running:
        yield running


@pytest.fixture
def mortal_postgres() -> Iterator[PostgresServer]:
    needs_postgres()
    with PostgresServer() as running:
        yield running


@pytest.mark.timeout(600)
def test_managers_meta_services_and_the_leader_of_etcd_may_be_killed(mortal_etcd: EtcdCluster, tmp_path: Path) -> None:
    url = f"{mortal_etcd.url}/meta"
    with SharedCluster(tmp_path, f"{mortal_etcd.url}/manager", url) as cluster:
        with Load(cluster) as load:
            load.wait()
            first, epoch = cluster.primary(), cluster.status().manager_epoch
            first.kill()
            assert cluster.status().manager_epoch > epoch
            assert cluster.primary() is not first
            load.wait()
            first.start()
            cluster.metas[0].kill()
            load.wait()
            cluster.metas[0].start()
            leader = mortal_etcd.leader()
            leader.kill()
            load.wait()
            mortal_etcd.launch(leader)
            load.wait()
        load.check()
    asyncio.run(audit_store(url))


@pytest.mark.timeout(600)
def test_backends_of_postgresql_may_be_killed(mortal_postgres: PostgresServer, tmp_path: Path) -> None:
    url = mortal_postgres.schema("meta")
    with SharedCluster(tmp_path, mortal_postgres.schema("manager"), url) as cluster:
        with Load(cluster) as load:
            load.wait()
            for _ in range(2):
                assert mortal_postgres.kill_backend(), "somebody is connected"
                load.wait()
        load.check()
    asyncio.run(audit_store(url))
