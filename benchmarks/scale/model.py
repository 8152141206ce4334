"""A model of many clients that read from a large cluster: cores, disks and links as queues, and nothing measured here.

A read goes from a core of its client to the service of a disk, which needs its core and its disk, then through the
fabric, then through the client's core again. Requests and grants are too small to fill links: they only have a latency.
The model has no metadata, no writes, no failures while it runs, and no congestion control beside request-to-send.
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import simpy

from benchmarks.scale import placements
from benchmarks.scale.calibration import Calibration
from benchmarks.scale.fabric import Fabric, Links
from benchmarks.scale.stations import Disk, Slots, Station


@dataclass(frozen=True, slots=True)
class Scenario:
    clients: int = 1000
    client_processes: int = 8
    reads_in_flight: int = 32  # of a client
    read_bytes: int = 1 << 20
    nodes: int = 180
    node_links: int = 2
    disks: int = 16  # of a node, each with a process of its own
    replicas: int = 3
    targets_per_disk: int = 3
    placement: str = "solver"
    dead_nodes: int = 0
    senders: int | None = 16  # that may send to a client at a time; None: without request-to-send
    links: Links = field(default_factory=Links)
    message_s: float = 10e-6  # one way, for requests, announcements and grants
    # In units of the time that a read is in flight if only the limit holds it up: queues are then as they stay.
    warm: float = 3.0
    measured: float = 2.0
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    gib_per_s: float
    limit_gib_per_s: float  # of what there is: disks, cores, links
    p50_ms: float
    p99_ms: float
    slowest_client: float  # its rate, as a share of the average
    busiest_disk: float  # share of the time
    average_disk: float
    dropped: int

    @property
    def share(self) -> float:
        return self.gib_per_s / self.limit_gib_per_s


class _Client:
    def __init__(self, env: simpy.Environment, port: int, scenario: Scenario) -> None:
        self.port = port
        self.cores = [Station(env) for _ in range(scenario.client_processes)]
        self.slots = Slots(env, scenario.senders)
        self.in_flight: dict[int, int] = {}  # reads by disk
        self.bytes = 0


class Model:
    def __init__(self, scenario: Scenario, calibration: Calibration) -> None:
        self._scenario = scenario
        self._costs = calibration
        self._random = random = Random(scenario.seed)
        self._env = env = simpy.Environment()
        disks = scenario.nodes * scenario.disks
        storage_ports = scenario.nodes * scenario.node_links
        self._fabric = Fabric(env, scenario.links, storage_ports + scenario.clients, random)
        self._services = [Station(env) for _ in range(disks)]
        disk = (calibration.disk_bytes_per_s, calibration.disk_latency_s, calibration.disk_latency_spread, random)
        self._disks = [Disk(env, *disk) for _ in range(disks)]
        self._clients = [_Client(env, storage_ports + number, scenario) for number in range(scenario.clients)]
        self._serving = self._living_replicas()
        self._latencies: list[float] = []

    def run(self) -> Outcome:
        scenario = self._scenario
        in_flight = scenario.clients * scenario.reads_in_flight * scenario.read_bytes
        residence_s = in_flight / self.limit_bytes_per_s()
        warm_s, measured_s = scenario.warm * residence_s, scenario.measured * residence_s
        for client in self._clients:
            for number in range(scenario.reads_in_flight):
                begin_s = self._random.random() * residence_s  # they do not begin as one
                self._env.process(self._reads(client, client.cores[number % len(client.cores)], begin_s))
        self._env.run(until=warm_s)
        self._latencies.clear()
        before = [disk.busy_s for disk in self._disks]
        for client in self._clients:
            client.bytes = 0
        self._env.run(until=warm_s + measured_s)
        return self._outcome([disk.busy_s - start for disk, start in zip(self._disks, before, strict=True)], measured_s)

    def _living_replicas(self) -> list[tuple[int, ...]]:
        scenario = self._scenario
        shape = (scenario.nodes, scenario.disks, scenario.replicas, scenario.targets_per_disk)
        made = placements.chains(scenario.placement, *shape, Random(scenario.seed))
        dead = scenario.dead_nodes * scenario.disks  # the first nodes are dead
        living = [tuple(disk for disk in chain if disk >= dead) for chain in made]
        return [chain for chain in living if chain]

    def _reads(self, client: _Client, core: Station, begin_s: float) -> Generator[simpy.Event, Any, None]:
        """One read after the other, of chunks anywhere."""
        env, scenario, costs = self._env, self._scenario, self._costs
        size, slots = scenario.read_bytes, client.slots
        request_s, transfer_s = costs.client_read_s, size * costs.client_byte_s
        yield env.timeout(begin_s)
        while True:
            begin = env.now
            yield env.timeout(core.delay(request_s))
            disk = self._choose(client)
            at_once = slots.take_now()
            yield env.timeout(scenario.message_s)
            yield env.timeout(self._services[disk].delay(costs.storage_s(size)))
            yield env.timeout(self._disks[disk].delay(size))
            if not at_once:  # announced, and granted in its turn
                yield env.timeout(scenario.message_s)
                yield slots.granted()
                yield env.timeout(scenario.message_s)
            node, number = divmod(disk, scenario.disks)
            source = node * scenario.node_links + number % scenario.node_links
            yield self._fabric.send(source, client.port, size)
            slots.give_back()
            yield env.timeout(core.delay(transfer_s))
            client.in_flight[disk] -= 1
            client.bytes += size
            self._latencies.append(env.now - begin)

    def _choose(self, client: _Client) -> int:
        """The replica of some chain from which this client awaits least."""
        chain = self._random.choice(self._serving)
        in_flight = client.in_flight
        least = min(in_flight.get(disk, 0) for disk in chain)
        disk = self._random.choice([disk for disk in chain if in_flight.get(disk, 0) == least])
        in_flight[disk] = least + 1
        return disk

    def _outcome(self, busy: list[float], measured_s: float) -> Outcome:
        scenario = self._scenario
        rates = [client.bytes for client in self._clients]
        total = sum(rates)
        living = busy[scenario.dead_nodes * scenario.disks :]
        ordered = sorted(self._latencies) or [0.0]
        return Outcome(
            gib_per_s=total / measured_s / (1 << 30),
            limit_gib_per_s=self.limit_bytes_per_s() / (1 << 30),
            p50_ms=ordered[len(ordered) // 2] * 1e3,
            p99_ms=ordered[int(len(ordered) * 0.99)] * 1e3,
            slowest_client=min(rates) / (total / len(rates)) if total else 0.0,
            busiest_disk=max(living) / measured_s,
            average_disk=sum(living) / len(living) / measured_s,
            dropped=self._fabric.dropped,
        )

    def limit_bytes_per_s(self) -> float:
        """The rate of the scarcest of disks, cores and links without any wait."""
        scenario, costs = self._scenario, self._costs
        nodes = scenario.nodes - scenario.dead_nodes
        size, link = scenario.read_bytes, scenario.links.bytes_per_s
        endless = float("inf")
        service_s, client_s = costs.storage_s(size), costs.client_s(size)
        service = size / service_s if service_s else endless
        core = size / client_s if client_s else endless
        storage = nodes * min(scenario.disks * min(costs.disk_bytes_per_s, service), scenario.node_links * link)
        return min(storage, scenario.clients * min(link, scenario.client_processes * core))


def simulate(scenario: Scenario, calibration: Calibration) -> Outcome:
    return Model(scenario, calibration).run()
