"""The configuration of the cluster: its versions in the manager's store, of which the newest counts.

A change names the version that its author has seen, so nobody overwrites what he does not know. It is checked before
it is stored, and makes a new version; a rollback makes one with the values of an old one.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import structlog

from threefs import configuration
from threefs.cluster.applied_configuration import AppliedConfiguration
from threefs.configuration import NOTHING_SET, Configuration, Role, Value
from threefs.env.clock import Clock
from threefs.env.disk import run_to_completion
from threefs.errors import Corrupt, InvalidArgument, NotFound, Unavailable
from threefs.kv import records
from threefs.kv.engine_api import Transaction
from threefs.rpc.methods import GET_CONFIGURATION, SET_CONFIGURATION, Method
from threefs.telemetry import logs
from threefs.wire import manager_pb2 as pb
from threefs_manager.chain_tables import CALL_ID_BYTES
from threefs_manager.chains.moves import MoveBounds
from threefs_manager.routing_publisher import RoutingPublisher
from threefs_manager.store.cluster_store import Store, read_cluster

#: Older versions are dropped.
MAX_VERSIONS = 100
MAX_WHO_CHARS = 255
MAX_MESSAGE_CHARS = 1024

_PREFIX = b"CNFG|"
_END = b"CNFG}"
_LOG = structlog.get_logger()


Handler = Callable[[Any], Awaitable[Any]]


class Serves(Protocol):
    """A server over frames or gRPC."""

    def serve(self, method: Method[Any, Any], handler: Handler) -> None: ...


def _nothing() -> None:
    """For values that are read when they are needed."""


def _key(version: int) -> bytes:
    return _PREFIX + version.to_bytes(4, "big")


def _number(key: bytes) -> int:
    return int.from_bytes(key.removeprefix(_PREFIX), "big")


async def read_versions(tx: Transaction) -> list[pb.ConfigurationVersion]:
    """Ascending, without those that are damaged: the newest of the others counts."""
    found = []
    for key, value in await tx.get_range(_PREFIX, _END):
        try:
            found.append(records.decode(value, pb.ConfigurationVersion, key))
        except Corrupt as error:
            _LOG.error("a version of the configuration cannot be read", version=_number(key), error=str(error))
    return found


async def _last_number(tx: Transaction) -> int:
    """The number of the newest version, whether it can be read or not; 0 if there is none."""
    pairs = await tx.get_range(_PREFIX, _END)
    return _number(pairs[-1][0]) if pairs else 0


class ConfigurationKeeper:
    """Answers administrators, and knows the newest version while this manager is primary."""

    def __init__(
        self,
        primary_store: Callable[[], Store],
        publisher: RoutingPublisher,
        own: Mapping[str, Value],
        clock: Clock,
    ) -> None:
        """`primary_store` raises NotPrimary. `own` has the values of the settings file."""
        self.current: Configuration = NOTHING_SET
        #: The values that this manager itself runs with. It takes values while it is primary.
        self.applied = AppliedConfiguration(Role.MANAGER, own)
        self._primary_store = primary_store
        self._publisher = publisher
        self._clock = clock
        self._since = clock.monotonic()
        self.applied.on_change(["log_level"], lambda: logs.set_level(self.applied.word("log_level")))
        self.applied.on_change(["nearly_full_ratio"], _nothing)  # the health of the cluster is computed from the report
        self.applied.on_change(["moves_filling_disk", "moves_reading_disk"], _nothing)  # see move_bounds

    @property
    def age_ms(self) -> int:
        """Since this primary has the newest version."""
        return round((self._clock.monotonic() - self._since) * 1000)

    def move_bounds(self) -> MoveBounds:
        return MoveBounds(self.applied.integer("moves_filling_disk"), self.applied.integer("moves_reading_disk"))

    def kept_bytes(self, capacity_bytes: int) -> int:
        """What a storage node of this configuration keeps free for a further target on its disk: the reserve, and the
        ballast of the target. The settings file of a node may say something else, which is not known here."""
        full_ratio, ballast_bytes = self._cluster_value("full_ratio"), self._cluster_value("ballast_bytes")
        return math.ceil(capacity_bytes * (1 - full_ratio)) + int(ballast_bytes)

    def _cluster_value(self, name: str) -> float:
        key = configuration.find(name)
        text = self.current.texts.get(name)
        try:
            value = key.default if text is None else configuration.parse(key, text)
        except InvalidArgument:  # of a later release, with other bounds: nodes of this release do not take it either
            value = key.default
        assert not isinstance(value, str)
        return value

    def bind(self, server: Serves, change: Callable[[Handler], Handler]) -> None:
        """`change` makes a handler of one that changes the store."""
        server.serve(GET_CONFIGURATION, self.get)
        server.serve(SET_CONFIGURATION, change(self.set))

    async def start_term(self, store: Store) -> None:
        """A term as primary begins."""
        self._take_over(_newest(await store.read(read_versions)))

    async def catch_up(self) -> None:
        """A change may have been made of which nobody was told."""
        newest = _newest(await self._primary_store().read(read_versions))
        if newest.version > self.current.version:
            self._take_over(newest)

    def _take_over(self, newest: Configuration) -> None:
        self.current = newest
        self._since = self._clock.monotonic()
        self.applied.begin(newest)
        self._publisher.publish_configuration(newest)

    async def get(self, request: pb.GetConfigurationRequest) -> pb.GetConfigurationReply:
        versions = await self._primary_store().read(read_versions)
        return pb.GetConfigurationReply(configuration=configuration.to_wire(_newest(versions)), versions=versions)

    async def set(self, request: pb.SetConfigurationRequest) -> pb.SetConfigurationReply:
        """Check and store a new version. Values that are the same already make none. Raises InvalidArgument, NotFound,
        and Unavailable before `init`."""
        # To its end even if its call is cancelled: what is stored has to be published.
        return await run_to_completion(asyncio.ensure_future(self._set(self._primary_store(), request)))

    async def _set(self, store: Store, request: pb.SetConfigurationRequest) -> pb.SetConfigurationReply:
        _check_request(request)
        made_ns = self._clock.wall_ns()

        async def write(tx: Transaction) -> list[pb.ConfigurationVersion]:
            if not (await read_cluster(tx)).cluster_id:
                raise Unavailable("the cluster has no plan yet; make it with `threefs up`, or with the Init call")
            versions = await read_versions(tx)
            if any(one.call_id == request.call_id for one in versions):
                return versions  # a repeat of the call that has made it; others may have changed it since
            after = _after(versions, request)
            before = _newest(versions)
            if dict(before.texts) == after:
                return versions
            number = await _last_number(tx) + 1  # also behind one that is damaged: somebody may have taken its values
            made = _version(Configuration(number, max(made_ns, before.made_ns + 1), after), request)
            if not request.dry_run:
                tx.set(_key(made.configuration.version), records.encode(made))
                for dropped in versions[: max(0, len(versions) + 1 - MAX_VERSIONS)]:
                    tx.clear(_key(dropped.configuration.version))
            return [*versions, made]

        versions = await store.run(write)
        newest = _newest(versions)
        if not request.dry_run and newest.version > self.current.version:  # else a later change was published first
            self._take_over(newest)
            _LOG.info("the configuration is set", version=newest.version, who=request.who, why=request.message)
        return _reply(versions, request)


def _newest(versions: list[pb.ConfigurationVersion]) -> Configuration:
    return configuration.from_wire(versions[-1].configuration) if versions else NOTHING_SET


def _check_request(request: pb.SetConfigurationRequest) -> None:
    """Raises InvalidArgument."""
    if len(request.call_id) != CALL_ID_BYTES:
        raise InvalidArgument(f"the id of the call has {len(request.call_id)} bytes, not {CALL_ID_BYTES}")
    if len(request.who) > MAX_WHO_CHARS or len(request.message) > MAX_MESSAGE_CHARS:
        raise InvalidArgument(
            f"who changes the configuration has a name of at most {MAX_WHO_CHARS} characters, not {len(request.who)}, "
            f"and a message of at most {MAX_MESSAGE_CHARS}, not {len(request.message)}"
        )
    names = [change.name for change in request.changes]
    if len(set(names)) < len(names):
        raise InvalidArgument("a change names each key once")
    if bool(names) == request.HasField("rollback_version"):
        raise InvalidArgument("a change of the configuration names keys, or a version to roll back to")


def _after(versions: list[pb.ConfigurationVersion], request: pb.SetConfigurationRequest) -> dict[str, str]:
    """The values after the change. Raises InvalidArgument, NotFound."""
    before = _newest(versions)
    if request.known_version != before.version:
        last = versions[-1] if versions else pb.ConfigurationVersion()
        raise InvalidArgument(
            f"the configuration is at version {before.version} now, not {request.known_version}: "
            f"{last.who or 'nobody'} has changed it ({last.message or 'no message'}); look at it again with "
            "`threefs config history`, then repeat the change"
        )
    if not request.HasField("rollback_version"):
        changes = {change.name: change.value if change.HasField("value") else None for change in request.changes}
        return configuration.changed(before.texts, changes)
    wanted = _texts_of(versions, request.rollback_version)
    back = {name: wanted.get(name) for name in configuration.differences(before.texts, wanted)}
    return configuration.changed(before.texts, back)


def _texts_of(versions: list[pb.ConfigurationVersion], number: int) -> dict[str, str]:
    """The values of a version. Raises NotFound."""
    if number == 0:
        return {}
    for one in versions:
        if one.configuration.version == number:
            return dict(configuration.from_wire(one.configuration).texts)
    kept = [one.configuration.version for one in versions]
    which = f"versions {kept[0]} to {kept[-1]} are kept" if kept else "nothing was ever set"
    raise NotFound(f"the configuration has no version {number} any more, or never had it: {which}; 0 has the defaults")


def _version(made: Configuration, request: pb.SetConfigurationRequest) -> pb.ConfigurationVersion:
    return pb.ConfigurationVersion(
        configuration=configuration.to_wire(made),
        who=request.who,
        message=request.message,
        rollback_version=request.rollback_version if request.HasField("rollback_version") else None,
        call_id=request.call_id,
    )


def _reply(versions: list[pb.ConfigurationVersion], request: pb.SetConfigurationRequest) -> pb.SetConfigurationReply:
    """The version of this call and the one before, or the newest one if the call has changed nothing."""
    made = next((place for place, one in enumerate(versions) if one.call_id == request.call_id), len(versions))
    return pb.SetConfigurationReply(
        before=configuration.to_wire(_newest(versions[:made])),
        configuration=configuration.to_wire(_newest(versions[: made + 1])),
    )
