"""What happens to the stores of the metadata and of the managers as a whole (I15): for a while another one is there.

AT empty STORE FOR      the services of the store are killed; they find an empty store, and later the right one again
AT aged STORE FOR       the same with the store as it was at half the time until now
AT restored meta FOR    the store of the metadata is lost: it is empty, until the backup of half the time is loaded

STORE is `meta` or `managers`. While a store is strange its services refuse it: nothing is served, granted or written.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from threefs_meta.store import keys

from tests.harness.seeded_random import SeededRandom
from tests.sim.kv import SimKv
from tests.sim.world import LEASE_S, World
from threefs.cluster.manager_records import CLUSTER_KEY, METADATA_KEY
from threefs.kv import records
from threefs.kv.restore_mark import RESTORE_KEY
from threefs.wire import manager_pb2 as pb
from threefs.wire.records_pb2 import Counter, RestoreMark, StoreRecord

META, MANAGERS = "meta", "managers"
KINDS = ("empty", "aged", "restored")
#: What the services do with the strange store must take effect meanwhile: they become primary, and wait for T.
LASTS_S = (0.5, 2.5 * LEASE_S)


class StoreFaults:
    def __init__(self, world: World) -> None:
        self.violations: list[str] = []
        self._world = world
        self._copies: dict[tuple[str, str], Mapping[bytes, bytes]] = {}
        self._strange: set[str] = set()

    def copy(self, what: str, store: str) -> None:
        """For `aged` and `restored`: the store as it is now."""
        if store not in self._strange:
            self._copies[what, store] = self._kv(store).pairs()

    def begin(self, what: str, store: str) -> Callable[[], Any] | None:
        """How to put it right; None where it cannot be, or where nobody could know that the store is strange."""
        found = self._copies.get((what, store), {}) if what != "empty" else {}
        if self._strange or (not found and what != "empty"):
            return None  # each of the stores knows the other
        if what == "aged" and not self._is_known_to_be_older(store, found):
            return None
        self._strange.add(store)
        hosts = self._world.meta_hosts if store == META else self._world.manager_hosts
        running = [host for host in hosts if host not in self._world.fabric.down]
        right = self._kv(store).pairs()
        self._mount(store, hosts, {} if what == "restored" else found)
        if what == "restored":
            self._world.restores += 1
        for host in running:
            self._world.start(host)
        refused = self._watch_meta({} if what == "restored" else found) if store == META else self._watch_managers()

        def put_right() -> None:
            self.violations += refused()
            self._mount(store, hosts, _restored(found) if what == "restored" else right)
            self._strange.discard(store)
            for host in hosts:
                if host not in self._world.fabric.down:
                    self._world.start(host)

        return put_right

    def _kv(self, store: str) -> SimKv:
        return self._world.meta_kv if store == META else self._world.manager_kv

    def _mount(self, store: str, hosts: Sequence[str], pairs: Mapping[bytes, bytes]) -> None:
        for host in hosts:
            self._world.kill(host)
        self._kv(store).mount(pairs)

    def _is_known_to_be_older(self, store: str, found: Mapping[bytes, bytes]) -> bool:
        if store == META:
            if keys.STORE not in found or keys.NEXT_INODE not in found:
                return False  # it was copied before it was made, or used
            known = records.decode(self._world.manager_kv.pairs()[METADATA_KEY], pb.MetadataStore, METADATA_KEY)
            record = records.decode(found[keys.STORE], StoreRecord, keys.STORE)
            generation = sum(
                records.decode(found[key], Counter, key).value for key in (keys.TICK, keys.STARTS) if key in found
            )
            next_inode = records.decode(found[keys.NEXT_INODE], Counter, keys.NEXT_INODE).value
            numbers_again = record.epoch == known.epoch and next_inode < known.next_inode
            return numbers_again or (record.epoch, generation) < (known.epoch, known.generation)
        nodes = [node for host, node in self._world.storages.items() if self._world.processes[host].running]
        version = records.decode(found[CLUSTER_KEY], pb.ClusterRecord, CLUSTER_KEY).routing_version
        return bool(nodes) and all(node._registration._newest_routing > version for node in nodes)

    def _watch_meta(self, found: Mapping[bytes, bytes]) -> Callable[[], list[str]]:
        world = self._world

        def refused() -> list[str]:
            complaints = [
                f"I15: {host} serves from a metadata store that is not that of the cluster"
                for host, node in world.metas.items()
                if world.processes[host].running and node._identity.record.store_id
            ]
            if world.meta_kv.pairs() != found:
                complaints.append("I15: something was written to a metadata store that is not that of the cluster")
            return complaints

        return refused

    def _watch_managers(self) -> Callable[[], list[str]]:
        world = self._world
        began = world.loop.time()

        def refused() -> list[str]:
            if world.loop.time() - began <= LEASE_S:
                return []  # leases of before may last
            return [
                f"I15: {host} has a lease of target {target.target_id} from a manager whose store is not the newest"
                for host, node in world.storages.items()
                if world.processes[host].running
                for target in node.targets
                if target.leased_until > target._clock.monotonic()
            ]

        return refused


def _restored(backup: Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
    return {**backup, RESTORE_KEY: records.encode(RestoreMark(complete=True, as_of_ns=1))}


def draw(dice: SeededRandom, length_s: float) -> list[tuple[float, str, str, float]]:
    """Moments, kinds, stores and times: one or two of a run."""
    steps = []
    for _ in range(1 + dice.below(2)):
        what = KINDS[dice.below(len(KINDS))]
        store = META if what == "restored" or dice.chance(0.5) else MANAGERS
        steps.append((dice.uniform(0.2, 0.9) * length_s, what, store, dice.uniform(*LASTS_S)))
    return steps
