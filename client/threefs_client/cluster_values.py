"""The options of a connection that the configuration of the cluster can set (`threefs config`), while it is open.

An option with another value than its default was chosen by the program, and stays. The others follow the cluster. The
connection says which version it has taken when it asks for the routing (`threefs config status`).
"""

import os
import sys
from collections.abc import Callable

from threefs.cluster.applied_configuration import AppliedConfiguration
from threefs.cluster.routing_watcher import RoutingWatcher
from threefs.configuration import KEYS, Role, Value
from threefs.ids import ClientId
from threefs.wire import manager_pb2 as pb
from threefs_client.options import Options


def own_options(options: Options) -> dict[str, Value]:
    """The options that the program has chosen, of those that the cluster can set."""
    found = {name: getattr(options, name) for name, key in KEYS.items() if Role.CLIENT in key.roles}
    return {name: value for name, value in found.items() if value != KEYS[name].default}


def process_name() -> str:
    """What administrators recognize this process by."""
    program = os.path.basename(sys.argv[0]) if sys.argv else ""
    return f"{program or 'python'} on {os.uname().nodename}, process {os.getpid()}"


class ClusterValues:
    def __init__(self, options: Options, client: ClientId, name: str) -> None:
        self.name = name  # for administrators
        self._client = client
        self._applied = AppliedConfiguration(Role.CLIENT, own_options(options))
        self._followers: dict[str, list[Callable[[int], None]]] = {}

    def follow(self, name: str, apply: Callable[[int], None]) -> None:
        """Call `apply` with the value in force, now and whenever another one is."""
        if name not in self._followers:
            self._followers[name] = []
            self._applied.on_change([name], lambda: self._apply(name))
        self._followers[name].append(apply)
        apply(self._applied.integer(name))

    def start(self, cluster: RoutingWatcher) -> None:
        """All that follow have been named."""
        self._applied.begin(cluster.configuration)
        cluster.on_configuration = self._applied.adopt
        cluster.client_report = self._report

    def _report(self) -> pb.ClientReport:
        return pb.ClientReport(client_id=self._client, name=self.name, configuration=self._applied.report)

    def _apply(self, name: str) -> None:
        for apply in self._followers[name]:
            apply(self._applied.integer(name))
