"""The cost of a run for the services of its cluster, as far as they run on this host: their CPU seconds."""

from collections.abc import Iterable
from dataclasses import dataclass

import threefs_client
from threefs_client import addresses

from threefs.env import local_sockets
from threefs.env.net import parse_address
from threefs.routing import NodeKind, Routing
from threefs_bench.cost_meter import process_cpu_s

_CONNECT_S = 10.0


@dataclass(frozen=True, slots=True)
class Service:
    role: str  # manager, meta or storage
    process: int


async def find_services(address: str, key_file: str) -> list[Service]:
    """The services of a cluster that run on this host. Raises what connecting raises."""
    async with await threefs_client.connect_async(address, connect_timeout_s=_CONNECT_S, key_file=key_file) as fs:
        known = [("manager", one) for one in addresses.parse(address)]
        known += named(fs.context.cluster.routing)
    found = {Service(role, process) for role, one in known if (process := _listener(one)) is not None}
    return sorted(found, key=lambda service: (service.role, service.process))


def named(routing: Routing) -> list[tuple[str, str]]:
    """(role, address) of the services that have registered."""
    roles = {NodeKind.META: "meta", NodeKind.STORAGE: "storage"}
    return [(roles[node.kind], node.address) for node in routing.nodes.values() if node.address]


def _listener(address: str) -> int | None:
    owner = local_sockets.who_listens(*parse_address(address))
    return None if owner is None else owner.pid


class ServiceMeter:
    """CPU seconds of services between `begin` and `end`, by role. A process that ends in between counts as nothing."""

    def __init__(self, services: Iterable[Service]) -> None:
        self._services = list(services)
        self._before: dict[Service, float] = {}

    def begin(self) -> None:
        self._before = self._now()

    def end(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for service, cpu_s in self._now().items():
            if service in self._before:
                found[service.role] = found.get(service.role, 0.0) + cpu_s - self._before[service]
        return found

    def _now(self) -> dict[Service, float]:
        found = {}
        for service in self._services:
            try:
                found[service] = process_cpu_s(service.process)
            except (FileNotFoundError, ProcessLookupError):
                continue
        return found
