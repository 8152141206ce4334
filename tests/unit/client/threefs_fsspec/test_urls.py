import pytest
from threefs_fsspec import urls

from threefs.errors import InvalidArgument

ADDRESS = "threefs://node1:7000,[::1]:7001"


@pytest.mark.parametrize(
    ("url", "address", "path"),
    [
        ("threefs:///a/b", "", "/a/b"),
        ("threefs://", "", "/"),
        ("threefs://data/train", "", "/data/train"),
        ("threefs://node1:7000", "threefs://node1:7000", "/"),
        (f"{ADDRESS}/a/b/", ADDRESS, "/a/b"),
        ("/a//b/./c", "", "/a/b/c"),
        ("a/b", "", "/a/b"),
        ("", "", "/"),
        ("threefs::/a", "", "/a"),
        ("/a/http://b", "", "/a/http:/b"),
    ],
)
def test_a_url_has_a_cluster_and_a_path(url: str, address: str, path: str) -> None:
    assert urls.split(url) == (address, path)
    assert urls.split(path) == ("", path)


@pytest.mark.parametrize("url", ["threefs://node1:x/a", "threefs://node1:/a", "threefs://node1:7000,/a"])
def test_what_is_no_cluster_is_not_taken_for_a_path(url: str) -> None:
    with pytest.raises(InvalidArgument, match="write threefs://host:port/path, or threefs:///path"):
        urls.split(url)


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        (ADDRESS, True),
        ("threefs://node2:7000,NODE1:7000", True),
        ("threefs://localhost:7001", True),
        ("threefs://127.0.0.1:7001", True),
        ("threefs://node1:7001", False),
        ("threefs://node2:7000", False),
    ],
)
def test_addresses_with_a_manager_in_common_are_of_one_cluster(other: str, is_same: bool) -> None:
    assert urls.may_be_same(ADDRESS, other) == urls.may_be_same(other, ADDRESS) == is_same
