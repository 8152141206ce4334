"""Several meta services on one store: applications do not notice that one of them dies, or hangs."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.support.etcd import EtcdCluster, needs_etcd
from tests.support.namespace_audit import audit
from tests.support.shared_cluster import Load, SharedCluster
from threefs.kv.engines import open_engine, parse


async def audited(url: str) -> None:
    engine = await open_engine(parse(url))
    try:
        await audit(engine)
    finally:
        await engine.close()


@pytest.mark.timeout(400)
def test_applications_go_on_while_meta_services_die_and_hang(tmp_path: Path) -> None:
    """A call has so much time that none would come to its end by the next try of a stopped service."""
    needs_etcd()
    with EtcdCluster(tmp_path / "etcd", 1) as etcd:
        url = f"{etcd.url}/meta"
        with SharedCluster(
            tmp_path, f"{etcd.url}/manager", url, managers=1, metas=3, attempt_timeout_s=300.0, timeout_s=300.0
        ) as cluster:
            with Load(cluster, workers=6) as load:
                load.wait()
                cluster.metas[0].kill()
                load.wait()
                hanging = cluster.metas[1].process.pid
                os.kill(hanging, signal.SIGSTOP)
                try:
                    load.wait()  # all of them, whichever service they use
                finally:
                    os.kill(hanging, signal.SIGCONT)
                load.wait()
                cluster.metas[0].start()
                cluster.metas[2].kill()
                load.wait()
            load.check()
        asyncio.run(audited(url))
