import pytest

from threefs.errors import WrongCluster
from threefs.rpc.identity import Identity, check_cluster


def test_a_key_is_never_printed() -> None:
    assert "secret" not in repr(Identity("c", "0" * 32, token="secret-secret"))


def test_clusters_are_told_apart() -> None:
    check_cluster("a", "a")
    check_cluster("", "a")
    check_cluster("a", "")
    with pytest.raises(WrongCluster):
        check_cluster("a", "b")
