"""A cluster on addresses of IPv6."""

import socket
from pathlib import Path

import pytest

from tests.harness.cluster import LocalCluster


def lacking() -> str:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        return f"this machine has no IPv6: {error}"
    return ""


@pytest.mark.skipif(bool(lacking()), reason=lacking() or "it has IPv6")
def test_a_cluster_on_the_loopback_of_ipv6(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, storage=2, replicas=2, targets_per_disk=2, host="::1") as cluster:
        assert cluster.address.startswith("threefs://[::1]:")
        with cluster.connect() as fs:
            fs.write_file("/six", b"content")
            assert fs.read_file("/six") == b"content"
