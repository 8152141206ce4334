"""Addresses of clusters: "threefs://host:port[,host:port...]"."""

from threefs.errors import InvalidArgument

_SCHEME = "threefs://"


def parse(url: str) -> tuple[str, ...]:
    """The manager addresses ("host:port") of a cluster URL; the scheme may be left out.

    Raises InvalidArgument, which says what is wrong.
    """
    if not isinstance(url, str):
        raise InvalidArgument(f"a cluster address is a string like {_SCHEME}127.0.0.1:7000, not {url!r}")
    rest = url.removeprefix(_SCHEME).rstrip("/")
    if "://" in rest:
        raise InvalidArgument(f"cluster address {url!r} must begin with {_SCHEME}")
    if not rest:
        raise InvalidArgument(f"cluster address {url!r} names no host; write {_SCHEME}host:port")
    if "/" in rest:
        raise InvalidArgument(f"cluster address {url!r} must not have a path")
    return tuple(_checked(part, url) for part in rest.split(","))


def _checked(part: str, url: str) -> str:
    host, colon, port = part.strip().rpartition(":")
    if not colon or not host:
        raise InvalidArgument(f"cluster address {url!r}: {part!r} is not host:port")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise InvalidArgument(f"cluster address {url!r}: an IPv6 address stands in brackets, as in [::1]:7000")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise InvalidArgument(f"cluster address {url!r}: port {port!r} is not a number from 1 to 65535")
    return f"{host}:{int(port)}"


def unparse(addresses: tuple[str, ...]) -> str:
    return _SCHEME + ",".join(addresses)
