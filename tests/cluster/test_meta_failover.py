"""Several meta services on one store: applications do not notice that one of them dies, or hangs."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.etcd import EtcdCluster, needs_etcd
from tests.harness.namespace_audit import audit_store
from tests.harness.postgres import PostgresServer, needs_postgres
from tests.harness.shared_cluster import Load, SharedCluster


@pytest.fixture(params=["etcd", "postgresql"])
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Stores for managers and for meta services."""
    if request.param == "etcd":
        needs_etcd()
        with EtcdCluster(tmp_path / "etcd", 1) as etcd:
            yield f"{etcd.url}/manager", f"{etcd.url}/meta"
    else:
        needs_postgres()
        with PostgresServer() as server:
            yield server.schema("manager"), server.schema("meta")


@pytest.mark.timeout(400)
def test_applications_go_on_while_meta_services_die_and_hang(urls: tuple[str, str], tmp_path: Path) -> None:
    """A call has so much time that none would come to its end by the next try of a stopped service."""
    with SharedCluster(tmp_path, *urls, managers=1, metas=3, attempt_timeout_s=300.0, timeout_s=300.0) as cluster:
        with Load(cluster, workers=6) as load:
            load.wait(3)
            cluster.metas[0].kill()
            load.wait(3)
            for meta in cluster.metas[1:]:  # every client uses one of them
                os.kill(meta.process.pid, signal.SIGSTOP)
                try:
                    load.wait(3)  # all clients, whatever the service has begun in the store
                finally:
                    os.kill(meta.process.pid, signal.SIGCONT)
                load.wait(3)
            cluster.metas[0].start()
            cluster.metas[2].kill()
            load.wait(3)
        load.check()
    asyncio.run(audit_store(urls[1]))
