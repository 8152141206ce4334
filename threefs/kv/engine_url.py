"""The URL of a key-value engine: parsing it, and opening the engine. `shown` and all errors are without passwords.

rocks:///directory
etcd://[user:password@]host:port,host:port,...[/name][?ca=FILE&cert=FILE&key=FILE]
postgresql://...     a URL of libpq
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

import grpc

from threefs.env.clock import CLOCK, Clock
from threefs.env.directory_lock import check_owner, check_place
from threefs.env.sync_policy import SyncPolicy
from threefs.errors import InvalidSettings, NotFound
from threefs.kv.engine_api import DurableEngine
from threefs.kv.etcd import EtcdEngine
from threefs.kv.recovering_engine import RecoveringEngine

_ETCD_PORT = 2379
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_POSTGRES = ("postgresql", "postgres")
_TLS_FILES = ("ca", "cert", "key")


@dataclass(frozen=True, slots=True)
class EngineUrl:
    shown: str  # for messages: without password and options
    scheme: str
    full: str = field(repr=False)

    def __str__(self) -> str:
        return self.shown

    @property
    def shared(self) -> bool:
        """Whether several processes may use the store at once."""
        return self.scheme != "rocks"


def parse(text: str) -> EngineUrl:
    """Raises InvalidSettings."""
    scheme, colon, _ = text.partition("://")
    if not colon or scheme not in ("rocks", "etcd", *_POSTGRES):
        shown = f"{scheme}://..." if colon else "a text without ://"
        raise InvalidSettings(
            f"the URL of an engine is rocks:///directory, etcd://host:port,... or postgresql://..., not {shown}"
        )
    parts = urlsplit(text)
    user, at, hosts = parts.netloc.rpartition("@")
    url = EngineUrl(f"{scheme}://{user.partition(':')[0]}{at}{hosts}{parts.path}", scheme, text)
    if scheme == "rocks":
        _directory(url)
    elif scheme == "etcd":
        _members(url)
        _etcd_name(url)
        _options(url)
    return url


def url_of(setting: str, directory: Path) -> EngineUrl:
    """The URL in a setting; for an empty setting the embedded engine in `directory`. Raises InvalidSettings."""
    return parse(setting or f"rocks://{directory.absolute()}")


async def open_engine(url: EngineUrl, *, clock: Clock = CLOCK, sync_policy: SyncPolicy | None = None) -> DurableEngine:
    """Open the engine. With a `sync_policy`, an embedded one may sync its log on the event loop.

    Raises Unavailable, NotAuthorised, InvalidSettings, Corrupt, NoSpace.
    """
    if url.scheme == "rocks":
        return await RecoveringEngine.open(_directory(url), clock=clock, sync_policy=sync_policy)
    if url.scheme == "etcd":
        user, _, password = urlsplit(url.full).netloc.rpartition("@")[0].partition(":")
        return await EtcdEngine.open(
            _members(url),
            name=_etcd_name(url),
            user=unquote(user),
            password=unquote(password),
            credentials=_credentials(url),
            clock=clock,
        )
    try:
        from threefs.kv.postgres import PostgresEngine
    except ImportError as error:
        raise InvalidSettings(
            f"the engine {url} needs the extra 'postgres': pip install 'threefs[postgres]' ({error})"
        ) from None
    return await PostgresEngine.open(url.full, clock=clock)


def require(url: EngineUrl) -> None:
    """Check that an embedded store exists, because opening would make an empty one, and that it is this user's, because
    opening makes files that its service must be able to open. Raises NotFound, PermissionDenied."""
    if url.scheme != "rocks":
        return
    if not (_directory(url) / "CURRENT").is_file():
        raise NotFound(f"there is no store in {_directory(url)}; name the directory kv in the data_dir of a service")
    check_owner(_directory(url))


def require_own_place(url: EngineUrl) -> None:
    """Check that an embedded store, existing or new, is in a place of this user's, because its service must be able to
    open the files that are made. Raises PermissionDenied."""
    if url.scheme == "rocks":
        check_place(_directory(url))


def _directory(url: EngineUrl) -> Path:
    path = url.full.partition("://")[2]
    if not path.startswith("/"):
        raise InvalidSettings(f"the engine {url} must name an absolute directory: rocks:///directory")
    return Path(path)


def _members(url: EngineUrl) -> list[str]:
    hosts = urlsplit(url.full).netloc.rpartition("@")[2]
    members = []
    for host in hosts.split(","):
        name, colon, port = host.rpartition(":")
        if colon and not host.endswith("]"):
            if not name or not port.isdecimal() or not 0 < int(port) < 65536:
                raise InvalidSettings(f"the engine {url} names the member {host!r}, which is not host:port")
            members.append(host)
        elif host:
            members.append(f"{host}:{_ETCD_PORT}")
        else:
            raise InvalidSettings(f"the engine {url} has an empty member; name them as in etcd://host:port,host:port")
    return members


def _etcd_name(url: EngineUrl) -> str:
    name = urlsplit(url.full).path.removeprefix("/")
    if name and not _NAME.fullmatch(name):
        raise InvalidSettings(
            f"the engine {url} has the name {name!r}; a name is 1 to 64 letters, digits, dots, _ and -"
        )
    return name or "threefs"


def _options(url: EngineUrl) -> dict[str, str]:
    options = dict(parse_qsl(urlsplit(url.full).query, keep_blank_values=True))
    unknown = sorted(set(options) - set(_TLS_FILES))
    if unknown:
        raise InvalidSettings(f"the engine {url} has the unknown option {unknown[0]!r}; known are ca, cert, key")
    if ("cert" in options) != ("key" in options):
        raise InvalidSettings(f"the engine {url} needs cert and key together")
    return options


def _credentials(url: EngineUrl) -> grpc.ChannelCredentials | None:
    options = _options(url)
    if not options:
        return None
    try:
        content = {name: Path(file).read_bytes() for name, file in options.items()}
    except OSError as error:
        raise InvalidSettings(f"the engine {url}: {error.filename}: {error.strerror}") from None
    return grpc.ssl_channel_credentials(content.get("ca"), content.get("key"), content.get("cert"))
