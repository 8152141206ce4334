"""Options of an open connection follow the configuration of the cluster, unless the program has chosen them."""

from typing import Any, cast

from threefs_client.cluster_values import ClusterValues, own_options
from threefs_client.options import Options

from threefs.configuration import KEYS, Configuration, Role
from threefs.ids import ClientId
from threefs.wire import manager_pb2 as pb

CLIENT = ClientId(b"c" * 16)


def values_of(options: Options) -> ClusterValues:
    return ClusterValues(options, CLIENT, "a job")


class Cluster:
    """The part of a `RoutingWatcher` that is needed."""

    def __init__(self, **texts: str) -> None:
        self.configuration = Configuration(1, 1, texts)
        self.on_configuration: Any = None
        self.client_report: Any = None

    def now(self, version: int, **texts: str) -> None:
        self.on_configuration(Configuration(version, version, texts))


def test_the_defaults_are_those_of_the_options() -> None:
    found = {name: key.default for name, key in KEYS.items() if Role.CLIENT in key.roles}
    assert found == {name: getattr(Options(), name) for name in found} and len(found) == 2
    assert all(KEYS[name].is_hot for name in found)


def test_values_come_with_the_connection_and_change_while_it_is_open() -> None:
    values, cluster = values_of(Options()), Cluster(max_dirty_bytes="1000")
    seen: list[int] = []
    others: list[int] = []
    values.follow("max_dirty_bytes", seen.append)
    values.start(cast(Any, cluster))
    values.follow("max_dirty_bytes", others.append)
    cluster.now(2, max_dirty_bytes="2000", full_ratio="0.9")
    cluster.now(3, full_ratio="0.8", a_later_key="1")
    assert seen == [64 << 20, 1000, 2000, 64 << 20] and others == [1000, 2000, 64 << 20]


def test_what_the_program_has_chosen_stays() -> None:
    options, cluster = Options(max_dirty_bytes=5000), Cluster(max_dirty_bytes="1000")
    seen: list[int] = []
    assert own_options(options) == {"max_dirty_bytes": 5000}
    values = values_of(options)
    values.follow("max_dirty_bytes", seen.append)
    values.start(cast(Any, cluster))
    cluster.now(2, max_dirty_bytes="2000")
    assert seen == [5000]


def test_it_says_what_it_runs_with() -> None:
    cluster = Cluster()
    values = values_of(Options(max_dirty_bytes=5000))
    values.start(cast(Any, cluster))
    cluster.now(2, max_dirty_bytes="2000")
    said = cluster.client_report()
    assert (said.client_id, said.name, said.configuration.version) == (CLIENT, "a job", 2)
    assert [(key.name, key.value, key.state) for key in said.configuration.keys] == [
        ("max_dirty_bytes", "5000", pb.OWN_FILE)
    ]
    values.name = "mount /mnt"
    assert cluster.client_report().name == "mount /mnt"
