"""What happens to the stores of the metadata and of the managers as a whole (I15): for a while another one is there.

AT empty STORE FOR      the services of the store are killed; they find an empty store, and later the right one again
AT aged STORE FOR       the same with the store as it was at half the time until now
AT restored STORE FOR   the store is lost: it is empty, until the backup of half the time is loaded
AT torn STORE FOR       the same with half of that backup in the place of the empty store: its restore was broken off

STORE is `meta` or `managers`, where stores are lost also `both`. While a store is strange its services refuse it:
nothing is served, granted or written. A store that was lost lacks what is younger than the backup: names, and what has
happened to chains, but no byte of a chunk. An administrator adds the nodes again that have joined since.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from threefs_meta.store import keys

from tests.harness.seeded_random import SeededRandom
from tests.sim.local_store import DiskStore
from tests.sim.world import LEASE_S, World
from threefs.cluster.manager_records import CLUSTER_KEY, METADATA_KEY
from threefs.kv import records
from threefs.kv.restore_mark import RESTORE_KEY
from threefs.wire import manager_pb2 as pb
from threefs.wire.records_pb2 import Counter, RestoreMark, StoreRecord

META, MANAGERS, BOTH = "meta", "managers", "both"
_RESTORES = ("restored", "torn")
KINDS = ("empty", "aged", *_RESTORES)
#: What the services do with the strange store must take effect meanwhile: they become primary, and wait for T.
LASTS_S = (0.5, 2.5 * LEASE_S)


class _Store(Protocol):
    def pairs(self) -> dict[bytes, bytes]: ...

    def mount(self, pairs: Mapping[bytes, bytes]) -> None: ...


class StoreFaults:
    def __init__(self, world: World) -> None:
        self.violations: list[str] = []
        self._world = world
        self._copies: dict[tuple[str, str], Mapping[bytes, bytes]] = {}
        self._strange: set[str] = set()

    def copy(self, what: str, store: str) -> None:
        """For `aged`, `restored` and `torn`: the store as it is now."""
        for one in _stores(store):
            if one not in self._strange:
                self._copies[what, one] = self._kv(one).pairs()

    def begin(self, what: str, store: str) -> Callable[[], Any] | None:
        """How to put it right; None where it cannot be, or where nobody could know that the store is strange."""
        stores = _stores(store)
        found = {one: self._copies.get((what, one), {}) if what != "empty" else {} for one in stores}
        if self._strange or (what != "empty" and not all(map(_is_used, stores, found.values()))):
            return None  # each of the stores knows the other
        if META in stores and METADATA_KEY not in self._kv(MANAGERS).pairs():
            return None  # the cluster has no metadata store yet, and would take this one
        if what == "aged" and not self._is_known_to_be_older(store, found[store]):
            return None
        self._strange.update(stores)
        hosts = [host for one in stores for host in self._hosts(one)]
        running = [host for host in hosts if host not in self._world.fabric.down]
        right = {one: _restored(found[one]) if what in _RESTORES else self._kv(one).pairs() for one in stores}
        strange = {one: _meanwhile(what, found[one]) for one in stores}
        self._mount(strange)
        if what in _RESTORES and META in stores:
            self._world.restores += 1
        for host in running:
            self._world.start(host)
        watches = [self._watch_meta(pairs) if one == META else self._watch_managers() for one, pairs in strange.items()]

        def put_right() -> None:
            for refused in watches:
                self.violations += refused()
            self._mount(right)
            self._strange.difference_update(stores)
            for host in hosts:
                if host not in self._world.fabric.down:
                    self._world.start(host)

        return put_right

    def _kv(self, store: str) -> "_Store":
        world = self._world
        if world.size.local_stores:
            return DiskStore(world.store_disks[self._hosts(store)[0]])
        return world.meta_kv if store == META else world.manager_kv

    def _hosts(self, store: str) -> Sequence[str]:
        return self._world.meta_hosts if store == META else self._world.manager_hosts

    def _mount(self, stores: Mapping[str, Mapping[bytes, bytes]]) -> None:
        for store, pairs in stores.items():
            for host in self._hosts(store):
                self._world.kill(host)
            self._kv(store).mount(pairs)

    def _is_known_to_be_older(self, store: str, found: Mapping[bytes, bytes]) -> bool:
        if store == META:
            if keys.STORE not in found or keys.NEXT_INODE not in found:
                return False  # it was copied before it was made, or used
            mark = found.get(RESTORE_KEY)
            if mark is not None and not records.decode(mark, RestoreMark, RESTORE_KEY).restore_id:
                return False  # copied before a service had started on it: to load it again is one more restore
            known = records.decode(self._kv(MANAGERS).pairs()[METADATA_KEY], pb.MetadataStore, METADATA_KEY)
            record = records.decode(found[keys.STORE], StoreRecord, keys.STORE)
            generation = sum(
                records.decode(found[key], Counter, key).value for key in (keys.TICK, keys.STARTS) if key in found
            )
            next_inode = records.decode(found[keys.NEXT_INODE], Counter, keys.NEXT_INODE).value
            numbers_again = record.epoch == known.epoch and next_inode < known.next_inode
            return numbers_again or (record.epoch, generation) < (known.epoch, known.generation)
        if RESTORE_KEY in found:
            return False  # copied before its chains were settled: to load it again is one more restore
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
            if self._kv(META).pairs() != found:
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


def loses_chains(what: str, store: str) -> bool:
    """Whether the managers forget what has happened to chains."""
    return what in _RESTORES and store != META


def _stores(store: str) -> tuple[str, ...]:
    return (MANAGERS, META) if store == BOTH else (store,)


def _is_used(store: str, pairs: Mapping[bytes, bytes]) -> bool:
    """Whether there is something in it that may be lost. The metadata begin with the first start of their service."""
    return (keys.STORE if store == META else CLUSTER_KEY) in pairs


def _meanwhile(what: str, found: Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
    """What is in the store until it is put right."""
    if what == "restored":
        return {}
    if what == "torn":
        half = dict(sorted(found.items())[: len(found) // 2])
        return {**half, RESTORE_KEY: records.encode(RestoreMark(complete=False, as_of_ns=1))}
    return found


def _restored(backup: Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
    return {**backup, RESTORE_KEY: records.encode(RestoreMark(complete=True, as_of_ns=1))}


def draw(dice: SeededRandom, length_s: float) -> list[tuple[float, str, str, float]]:
    """Moments, kinds, stores and times: one or two of a run."""
    steps = []
    for _ in range(1 + dice.below(2)):
        what = ("empty", "aged", "restored")[dice.below(3)]
        store = META if what == "restored" or dice.chance(0.5) else MANAGERS
        steps.append((dice.uniform(0.2, 0.9) * length_s, what, store, dice.uniform(*LASTS_S)))
    return steps


def draw_restores(dice: SeededRandom, length_s: float, *, names: bool) -> list[tuple[float, str, str, float]]:
    """The same for stores that are lost and restored: up to three of a run. With `names`, also that of the metadata."""
    steps = []
    for _ in range(1 + dice.below(3)):
        what = _RESTORES[dice.below(len(_RESTORES))]
        store = (MANAGERS, MANAGERS, BOTH, META)[dice.below(4)] if names else MANAGERS
        steps.append((dice.uniform(0.1, 1.0) * length_s, what, store, dice.uniform(*LASTS_S)))
    return steps
