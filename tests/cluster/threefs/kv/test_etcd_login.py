import asyncio
import subprocess
from pathlib import Path

import pytest

from tests.harness.etcd import EtcdCluster, needs_etcd
from threefs.errors import NotAuthorised, Unavailable
from threefs.kv import engine_url, etcd_login
from threefs.kv.engine_api import DurableEngine
from threefs.kv.etcd_members import Members
from threefs.wire import etcd_pb2 as pb


async def open_store(url: str) -> DurableEngine:
    return await engine_url.open_engine(engine_url.parse(url))


def test_only_who_has_the_password_uses_the_cluster(tmp_path: Path) -> None:
    needs_etcd()

    async def work(cluster: EtcdCluster) -> None:
        address = cluster.addresses[0]
        for _ in range(2):  # harmless a second time
            await etcd_login.require_login(address, "secret", 30.0)
        with pytest.raises(NotAuthorised):
            await open_store(f"etcd://{address}/a")
        with pytest.raises(NotAuthorised):
            await open_store(f"etcd://{etcd_login.ROOT}:guess@{address}/a")
        store = await open_store(f"etcd://{etcd_login.ROOT}:secret@{address}/a")
        tx = store.begin()
        tx.set(b"key", b"value")
        await tx.commit()
        await store.close()

    with EtcdCluster(tmp_path, size=1) as cluster:
        asyncio.run(work(cluster))


def test_calls_at_the_same_time_log_in_again_when_a_member_was_started_again(tmp_path: Path) -> None:
    """It keeps its tokens in memory alone."""
    needs_etcd()

    async def work(cluster: EtcdCluster) -> None:
        await etcd_login.require_login(cluster.addresses[0], "secret", 30.0)
        members = Members(cluster.addresses, user=etcd_login.ROOT, password="secret")
        request = pb.EtcdRange(key=b"key")
        await members.read(request)
        cluster.members[0].kill()
        cluster.launch(cluster.members[0])
        await asyncio.gather(*(members.read(request) for _ in range(50)))
        put = pb.EtcdTxn(success=[pb.EtcdOperation(put=pb.EtcdPut(key=b"key", value=b"value"))])
        cluster.members[0].kill()
        cluster.launch(cluster.members[0])
        await members.read(request)
        assert all(reply.succeeded for reply in await asyncio.gather(*(members.change(put) for _ in range(50))))
        await members.close()

    with EtcdCluster(tmp_path, size=1) as cluster:
        asyncio.run(work(cluster))


def with_jwt(directory: Path) -> tuple[str, str]:
    """The options of an etcd whose tokens are JWT, with keys of their own."""
    private, public = directory / "private.pem", directory / "public.pem"
    subprocess.run(["openssl", "genrsa", "-out", private, "2048"], check=True, capture_output=True)
    subprocess.run(["openssl", "rsa", "-in", private, "-pubout", "-out", public], check=True, capture_output=True)
    return "--auth-token", f"jwt,pub-key={public},priv-key={private},sign-method=RS256,ttl=10m"


def test_calls_log_in_again_when_a_user_was_added(tmp_path: Path) -> None:
    """A token of the kind JWT is refused after every change of users and roles, long before it expires."""
    needs_etcd()

    async def work(cluster: EtcdCluster) -> None:
        await etcd_login.require_login(cluster.addresses[0], "secret", 30.0)
        members = Members(cluster.addresses, user=etcd_login.ROOT, password="secret")
        put = pb.EtcdTxn(success=[pb.EtcdOperation(put=pb.EtcdPut(key=b"key", value=b"value"))])
        add = ["etcdctl", "--endpoints", cluster.addresses[0], "--user", f"{etcd_login.ROOT}:secret", "user", "add"]
        await members.read(pb.EtcdRange(key=b"key"))
        for name in ("first", "second"):
            await asyncio.to_thread(subprocess.run, [*add, f"{name}:password"], check=True, capture_output=True)
            if name == "first":
                assert (await members.change(put)).succeeded
            else:
                assert (await members.read(pb.EtcdRange(key=b"key"))).kvs[0].value == b"value"
        await members.close()

    with EtcdCluster(tmp_path, 1, *with_jwt(tmp_path)) as cluster:
        asyncio.run(work(cluster))


async def test_a_cluster_that_does_not_answer_is_named() -> None:
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
        await etcd_login.require_login("127.0.0.1:1", "secret", 0.0)
