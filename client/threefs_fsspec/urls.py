"""The two parts of a URL: "threefs://host:port/path" names a cluster, "threefs:///path" leaves that to the settings.

So does "threefs://data/train", which is the path /data/train, because no cluster is named without a port. Libraries
that take URLs apart write it so (Hugging Face datasets).
"""

from threefs_client import addresses

from threefs.errors import InvalidArgument

PROTOCOL = "threefs"
_SCHEME = PROTOCOL + "://"
_LOOPBACK = "127.0.0.1"


def split(url: str) -> tuple[str, str]:
    """(address "threefs://host:port[,host:port...]" or "", absolute path). Text without the scheme is a path.

    Raises InvalidArgument for a URL whose first part is no address.
    """
    if not url.startswith(_SCHEME):
        return "", normalized(url.removeprefix(PROTOCOL + "::"))
    rest = url.removeprefix(_SCHEME)
    authority, _, path = rest.partition("/")
    if ":" not in authority:
        return "", normalized(rest)
    try:
        address = addresses.unparse(addresses.parse(authority))
    except InvalidArgument as error:
        raise InvalidArgument(
            f"{url!r} names no cluster ({error}); write threefs://host:port/path, or threefs:///path for the cluster "
            "of $THREEFS_ADDRESS"
        ) from None
    return address, normalized(path)


def may_be_same(one: str, other: str) -> bool:
    """Whether both addresses name a manager in common."""
    return not {*map(_named_alike, addresses.parse(one))}.isdisjoint(map(_named_alike, addresses.parse(other)))


def _named_alike(manager: str) -> str:
    host, _, port = manager.rpartition(":")
    return f"{_LOOPBACK}:{port}" if host.lower() in ("localhost", "[::1]") else f"{host.lower()}:{port}"


def normalized(path: str) -> str:
    """The absolute path, without empty components, "." and a slash at the end. A relative one begins at the root."""
    return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))
