import pytest
from threefs_client import addresses

from threefs.errors import InvalidArgument


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("threefs://127.0.0.1:7000", ("127.0.0.1:7000",)),
        ("threefs://a:1,b:2/", ("a:1", "b:2")),
        ("host:07000", ("host:7000",)),
        ("threefs://[::1]:7000", ("[::1]:7000",)),
    ],
)
def test_addresses(url: str, expected: tuple[str, ...]) -> None:
    assert addresses.parse(url) == expected
    assert addresses.parse(addresses.unparse(expected)) == expected


@pytest.mark.parametrize(
    "url",
    [
        "",
        "threefs://",
        "http://a:1",
        "threefs://a",
        "a:b",
        "a:0",
        "a:65536",
        ":1",
        "a:1,",
        "a:1/x",
        "a:²",
        "::1:7000",
        7,
        None,
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgument, match="address"):
        addresses.parse(url)
