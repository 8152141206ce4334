"""The faults of a scenario: a list of steps in words, drawn from a seed or written down, and how each is carried out.

AT kill HOST FOR            kill -9; started again after FOR seconds
AT power HOST FOR           power cut; what was not synced is lost
AT stop HOST FOR            SIGTERM, and a start after FOR seconds
AT pause HOST FOR           SIGSTOP, SIGCONT
AT part HOST HOST FOR       nothing gets from the first to the second
AT split HOST HOST FOR      nothing gets either way
AT link HOST HOST FOR       `split` between storage processes, and longer; `half`: one way; `narrow`: what is large
AT isolate HOST FOR         nothing gets from or to the host
AT rift HOST HOST FOR       the network falls into two: the primary manager with these, all others with its store
AT lone HOST HOST FOR       nothing gets between the two and the managers; the first is back after two thirds
AT late HOST HOST FOR       what the head of a chain of the first sends to its successor arrives when that was out
                            and is back: till then the head reaches only the second, a client, which is killed
AT coup HOST HOST FOR       the primary manager is killed while the first and the second reach no manager
AT cut HOST HOST            connections break, and what is on its way is lost
AT hup HOST HOST            connections end as if the other side had ended them
AT lose HOST HOST FOR       messages from the first to the second often break their connection, and are lost
AT slow HOST FOR            everything from and to the host takes long
AT drag HOST FOR            its disk is slow
AT hang HOST FOR            what is asked of its disk is done only afterwards; `stall`: what is to be read
AT store HOST FOR           the host cannot reach the store of the managers
AT stray HOST FOR           its oldest registration is heard again
AT older HOST FOR           killed, and started again with its disk as it was 3 T before
AT wipe HOST FOR            killed, and started again with an empty disk
AT absent HOST FOR          killed, and started at once without its disk, which comes back when all are well again
AT eio HOST FOR             its disk fails; later it is killed, and started again with the disk working
AT full HOST FOR            its disk is full for a while
AT brim HOST FOR            when all are well it gets an empty disk, which fills up while its targets are filled
AT tight HOST FOR           its disk has a hundredth left: less than clients' writes may take
AT rots HOST                bits of one chunk flip in all its copies but one
AT blackout FOR             power cut of all hosts but the clients at once
AT surge HOST FOR           the same, and the disk of the host is empty afterwards
and those of `store_faults`, `dozes`, `intruders`, `visitors`, `moving_members`, `strange_disks`, `managers_asleep`,
`scarce_memory`, `small_disks`, `removed_nodes`, `configuration_changes`
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from tests.harness.seeded_random import SeededRandom
from tests.sim import intruders, managers_asleep, moving_members, store_faults, strange_disks
from tests.sim.administrator import hear_again
from tests.sim.bit_rot import flip_all_but_one
from tests.sim.configuration_changes import ConfigurationChanges
from tests.sim.emptied_disks import OLDER_S, EmptiedDisks
from tests.sim.full_syncing import FullSyncing
from tests.sim.intruders import Intruders
from tests.sim.lock_holders_asleep import Dozes
from tests.sim.moving_members import MovingMembers
from tests.sim.removed_nodes import RemovedNodes
from tests.sim.scarce_memory import ScarceMemory
from tests.sim.small_disks import SmallDisks
from tests.sim.store_faults import StoreFaults
from tests.sim.tight_disks import TightDisks
from tests.sim.visitors import Visitors
from tests.sim.world import LEASE_S, World

SLOW_S = (0.02, 0.3)
DRAG_S = (0.01, 0.2)
LOSS = 0.3
RIFT_S = (LEASE_S, 2.6 * LEASE_S)  # there may be another primary, and it may have waited for T
DIES_S = 0.5 * LEASE_S
OUT_S = 1.25 * LEASE_S  # who reaches no manager for so long is out, of any chain that can do without it
LATE_S = 2.2 * LEASE_S  # and is back
_LASTS = {"rift": RIFT_S, "lone": (1.2 * LEASE_S, 3 * LEASE_S), "late": (LATE_S, 1.5 * LATE_S)}
_SHORT = (0.05, 1.8 * LEASE_S)
ROT_S = 4.0  # until the scrubber has found it, and the repair has been made; if it is rare, maybe never


@dataclass(frozen=True, slots=True)
class Step:
    at: float  # seconds after the load has begun
    what: str
    hosts: tuple[str, ...] = ()
    lasts: float = 0.0

    def __str__(self) -> str:
        return " ".join([f"{self.at:.3f}", self.what, *self.hosts, *([f"{self.lasts:.3f}"] if self.lasts else [])])


def parse(text: str) -> list[Step]:
    """Steps as they are printed, one a line."""
    steps = []
    for line in text.strip().splitlines():
        at, what, *rest = line.split()
        hosts = tuple(word for word in rest if not word[0].isdigit())
        lasts = [float(word) for word in rest if word[0].isdigit()]
        steps.append(Step(float(at), what, hosts, lasts[0] if lasts else 0.0))
    return steps


#: What may happen, how often, and for each host that it strikes, among whom (by first letter).
_MENU: Sequence[tuple[str, int, str]] = (
    ("kill", 10, "sssssmtc"),
    ("power", 8, "ssssm"),
    ("stop", 4, "s"),
    ("pause", 8, "sssmtcf"),
    ("part", 8, "sssmtcf sssmtcf"),
    ("split", 4, "sssmtc sssmtc"),
    ("isolate", 4, "ssm"),
    ("rift", 6, "s c"),
    ("lone", 10, "s cccs"),
    ("coup", 6, "sc sc"),
    ("late", 7, "s c"),
    ("cut", 10, "ssmtcf ssmtcf"),
    ("lose", 10, "ssscccmtf ssscccmtf"),
    ("slow", 3, "sm"),
    ("drag", 3, "s"),
    ("hang", 4, "s"),
    ("store", 3, "m"),
    ("wipe", 2, "s"),
    ("older", 2, "s"),
    ("eio", 2, "s"),
    ("full", 2, "s"),
    ("rot", 3, "s"),
    ("rots", 3, "s"),
    ("stray", 3, "s"),
    ("tight", 1, "s"),
    ("blackout", 1, ""),
    ("surge", 1, "s"),
)


def draw(dice: SeededRandom, world: World, length_s: float) -> list[Step]:
    """Faults over a time, sometimes many at once, sometimes few."""
    menu = [(what, places.split()) for what, weight, places in _MENU for _ in range(weight)]
    gap_s = dice.uniform(0.3, 2.6)
    steps: list[Step] = []
    at = dice.uniform(0, gap_s)
    while at < length_s:
        what, places = menu[dice.below(len(menu))]
        if what in _LASTS and at + _LASTS[what][0] > length_s:
            continue  # it is nothing without its time
        hosts: list[str] = []
        for letters in places:
            hosts.append(_host(dice, world, letters, hosts))
        steps.append(Step(at, what, tuple(hosts), _lasts(dice, what)))
        at += dice.uniform(0, 2 * gap_s)
    return steps


def _host(dice: SeededRandom, world: World, letters: str, taken: Sequence[str]) -> str:
    """The letter first: there are more storage hosts than others."""
    while True:
        letter = letters[dice.below(len(letters))]
        among = [host for host in world.hosts if host[0] == letter and host not in taken]
        if among:
            return among[dice.below(len(among))]


def _lasts(dice: SeededRandom, what: str) -> float:
    if what in ("cut", "stray", "rots"):
        return 0.0
    if what == "rot":
        return ROT_S
    return dice.uniform(*_LASTS.get(what, _SHORT))


class Faults:
    """Carries steps out, and takes all of them back in the end."""

    def __init__(self, world: World) -> None:
        self.counts: dict[str, int] = {}
        self._world = world
        self._undo: dict[int, Callable[[], Any]] = {}
        self._number = 0
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._quiet_until = 0.0
        self._dice = SeededRandom(world.seed, "rot")
        self.stores = StoreFaults(world)
        self._doze = Dozes(world).begin
        self._narrow = world.fabric.narrow
        self.intruders = Intruders(world)
        self.visitors = Visitors(world)
        self.scarce_memory = ScarceMemory(world)
        self._tight_disks = TightDisks(world)
        self.small_disks = SmallDisks(world, self._tight_disks)
        self.members = MovingMembers(world)
        self._emptied_disks = EmptiedDisks(world, self.members)
        self.full_syncing = FullSyncing(world, self._tight_disks, self._emptied_disks)
        self.removed_nodes = RemovedNodes(world, self._emptied_disks)
        self._tight, self._small = self._tight_disks.begin, self.small_disks.begin
        self._gone, self._scarce = self.removed_nodes.begin, self.scarce_memory.begin
        self.configuration = ConfigurationChanges(world)
        self._tune, self._visitors = self.configuration.begin, self.visitors.begin

    async def run(self, steps: Sequence[Step]) -> None:
        begin = self._world.loop.time()
        for step in steps:
            if step.what == "older":
                self._world.loop.call_later(max(0.0, step.at - OLDER_S - 0.1), self._emptied_disks.copy, step.hosts[0])
            elif step.what in store_faults.KINDS:
                self._world.loop.call_later(step.at / 2, self.stores.copy, step.what, step.hosts[0])
        for step in sorted(steps, key=lambda step: step.at):
            await asyncio.sleep(max(0.0, begin + step.at - self._world.loop.time()))
            self.begin(step)
        await self.full_syncing.ended()

    def begin(self, step: Step) -> None:
        undo = self._do(step)
        if undo is None:
            return
        self.counts[step.what] = self.counts.get(step.what, 0) + 1
        self._world.tell(f"-- {step.what} {' '.join(step.hosts)} {step.lasts:.3f}")
        self._number += 1
        number = self._number
        self._undo[number] = undo
        self._world.loop.call_later(step.lasts, self._end, number)

    def _end(self, number: int) -> None:
        undo = self._undo.pop(number, None)
        if undo is not None:
            undo()

    async def heal(self) -> None:
        """Nothing is wrong any more, and everything runs."""
        for number in list(self._undo):
            self._end(number)
        world = self._world
        if self._tasks:
            await asyncio.wait(list(self._tasks))
        for disk in world.disks.values():
            disk.failing.clear()
        for store in (world.manager_kv, world.meta_kv):
            store.unknown = store.late = store.conflicts = 0.0
        for host in [*world.manager_hosts, *world.storage_hosts, *world.meta_hosts, *world.client_hosts]:
            world.processes[host].resume()
            if host in world.fabric.down:
                world.restore_power(host)
            world.start(host)
        await self._emptied_disks.settle()
        world.tell("-- healed")

    def _do(self, step: Step) -> Callable[[], Any] | None:
        """Begin it; how to end it. None where it cannot be, or would be more than the protocol promises to survive."""
        if self._world.loop.time() < self._quiet_until:
            return None
        if step.what == "lone":
            return self._lone(*step.hosts, first_s=step.lasts * 2 / 3)
        if step.what in intruders.KINDS:
            return self.intruders.begin(step.what, *step.hosts)
        if step.what in moving_members.HOLDS and not self._emptied_disks.filled():
            return None  # the target may have the last copies
        if step.what in moving_members.KINDS:
            return self.members.begin(step.what, *step.hosts)
        if step.what == managers_asleep.KIND:
            return managers_asleep.begin(self._world, *step.hosts)
        if step.what in store_faults.KINDS:
            return self._store_fault(step.what, step.hosts[0])
        return getattr(self, f"_{step.what}")(*step.hosts)  # type: ignore[no-any-return]

    def _runs(self, host: str) -> bool:
        return self._world.processes[host].running

    def _kill(self, host: str) -> Callable[[], Any] | None:
        if not self._runs(host):
            return None
        self._world.kill(host)
        return lambda: self._world.start(host) if host not in self._world.fabric.down else None

    def _power(self, host: str) -> Callable[[], Any] | None:
        if host in self._world.fabric.down:
            return None
        self._world.cut_power(host)
        return lambda: self._world.restore_power(host)

    def _stop(self, host: str) -> Callable[[], Any] | None:
        node = self._world.storages.get(host)
        process = self._world.processes[host]
        if node is None or not process.running or not node.address or not node.targets.by_id:
            return None

        async def stop() -> None:
            self._world.stop(host)
            await asyncio.sleep(1.0)
            if process.alive:
                self._world.kill(host)

        self._background(stop())
        return lambda: self._world.start(host) if host not in self._world.fabric.down else None

    def _background(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._world.loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done))

    def _pause(self, host: str) -> Callable[[], Any] | None:
        if not self._runs(host):
            return None
        process = self._world.processes[host]
        process.pause()
        return process.resume

    def _part(self, source: str, destination: str, *, deliver: bool = False) -> Callable[[], Any]:
        self._world.fabric.block(source, destination)
        return lambda: self._world.fabric.unblock(source, destination, deliver=deliver)

    def _split(self, one: str, other: str, *, deliver: bool = False) -> Callable[[], Any]:
        first = self._part(one, other, deliver=deliver)
        second = self._part(other, one, deliver=deliver)
        return lambda: (first(), second())

    _link, _half = _split, _part

    def _isolate(self, host: str) -> Callable[[], Any]:
        undo = [self._split(host, other) for other in self._world.hosts if other != host]
        return lambda: [each() for each in undo]

    def _rift(self, *hosts: str) -> Callable[[], Any] | None:
        primary = self._world.primary()
        if primary is None:
            return None
        here = [primary, *hosts]
        there = [host for host in self._world.hosts if host not in here]
        undo = [self._store(primary), *(self._split(one, other) for one in here for other in there)]
        return lambda: [each() for each in undo]

    def _lone(self, *hosts: str, first_s: float | None = None) -> Callable[[], Any]:
        undo = [self._split(host, manager) for host in hosts for manager in self._world.manager_hosts]
        if first_s is not None:
            for each in undo[: len(self._world.manager_hosts)]:
                self._world.loop.call_later(first_s, each)
        return lambda: [each() for each in undo]

    def _coup(self, one: str, other: str) -> Callable[[], Any] | None:
        primary = self._world.primary()
        if primary is None:
            return None
        undo = [self._lone(one, other), self._kill(primary)]
        return lambda: [each() for each in undo if each is not None]

    def _late(self, host: str, client: str) -> Callable[[], Any] | None:
        pair = self._head_and_successor(host)
        if pair is None:
            return None
        head, successor = pair
        self._world.tell(f"-- what {head} sends to {successor} will be late")
        others = [other for other in self._world.hosts if other not in (head, client)]
        splits = [self._split(head, other, deliver=True) for other in others]

        def joined() -> None:
            for each in splits:
                each()

        back = self._lone(successor)
        later = self._world.loop.call_later
        self._quiet_until = self._world.loop.time() + LATE_S  # else something sets it right nearly always
        timers = [later(DIES_S, self._kill, client), later(OUT_S, back), later(LATE_S, joined)]

        def undo() -> None:
            for timer in timers:
                timer.cancel()
            back()
            joined()
            self._world.start(client)

        return undo

    def _head_and_successor(self, host: str) -> tuple[str, str] | None:
        """Of a chain of the host, that which it heads if there is one. The chain must be able to do without both."""
        routing = self._world.routing()
        if routing is None:
            return None
        rows = [
            [f"s{routing.targets[target].node_id}" for target in chain.serving] for chain in routing.chains.values()
        ]
        rows = sorted((row for row in rows if len(row) > 2 and host in row), key=lambda row: row[0] != host)
        return (rows[0][0], rows[0][1]) if rows else None

    def _cut(self, one: str, other: str) -> Callable[[], Any]:
        self._world.fabric.cut(one, other)
        return lambda: None

    def _hup(self, one: str, other: str) -> Callable[[], Any]:
        self._world.fabric.hang_up(one, other)
        return lambda: None

    def _lose(self, source: str, destination: str) -> Callable[[], Any]:
        lossy = self._world.fabric.lossy
        lossy[source, destination] = LOSS
        return lambda: lossy.pop((source, destination), None)

    def _slow(self, host: str) -> Callable[[], Any]:
        slow = self._world.fabric.slow
        pairs = [pair for other in self._world.hosts for pair in ((host, other), (other, host))]
        slow.update(dict.fromkeys(pairs, SLOW_S))
        return lambda: [slow.pop(pair, None) for pair in pairs]

    def _drag(self, host: str) -> Callable[[], Any]:
        disk = self._world.disks[host]
        disk.dragging = DRAG_S
        return lambda: setattr(disk, "dragging", None)

    def _hang(self, host: str) -> Callable[[], Any]:
        disk = self._world.disks[host]
        disk.hang()
        return disk.wake

    def _stall(self, host: str) -> Callable[[], Any]:
        disk = self._world.disks[host]
        disk.hang("read")
        return disk.wake

    def _store(self, host: str) -> Callable[[], Any]:
        blocked = self._world.manager_kv.blocked
        blocked.add(host)
        return lambda: blocked.discard(host)

    def _store_fault(self, what: str, store: str) -> Callable[[], Any] | None:
        if not store_faults.loses_chains(what, store):
            return self.stores.begin(what, store)
        if not self._emptied_disks.filled():
            return None  # an older copy of a disk is known by what the managers have noted since
        put_right = self.stores.begin(what, store)

        def restored() -> None:
            assert put_right is not None
            put_right()
            self.members.join_again()

        return restored if put_right is not None else None

    def _wipe(self, host: str) -> Callable[[], Any] | None:
        return self._emptied_disks.wipe(host)

    def _older(self, host: str) -> Callable[[], Any] | None:
        return self._emptied_disks.older(host)

    def _absent(self, host: str) -> Callable[[], Any] | None:
        return self._emptied_disks.absent(host)

    def _brim(self, host: str) -> Callable[[], Any] | None:
        return self.full_syncing.begin(host, is_calm=lambda: len(self._undo) == 1)

    def _stray(self, host: str) -> Callable[[], Any] | None:
        registered = self._world.registered.get(host)
        if not registered or self._world.inquiry() is not None:
            return None  # no message outlives the managers that it was sent to, and these have heard nobody yet
        hear_again(self._world, registered[0])
        return lambda: None

    def _eio(self, host: str) -> Callable[[], Any] | None:
        return self._failing(host, "write", "sync", "remove")

    def _mute(self, host: str) -> Callable[[], Any] | None:
        return self._failing(host, "space")

    def _failing(self, host: str, *kinds: str) -> Callable[[], Any] | None:
        if not self._runs(host):
            return None
        disk = self._world.disks[host]
        disk.failing.update(kinds)

        def repaired() -> None:
            disk.failing.clear()
            if self._world.processes[host].alive:
                self._world.kill(host)
            if host not in self._world.fabric.down:
                self._world.start(host)

        return repaired

    def _full(self, host: str) -> Callable[[], Any]:
        return self._tight_disks.begin(host, left_bytes=0)

    def _quota(self, host: str) -> Callable[[], Any] | None:
        return self._tight_disks.refuse(host, left_bytes=0)

    def _scant(self, host: str) -> Callable[[], Any] | None:
        return self._tight_disks.refuse(host, left_bytes=strange_disks.SCANT_BYTES)

    def _rot(self, host: str) -> Callable[[], Any] | None:
        if not self._runs(host) or not self._world.healthy() or self._undo:
            return None  # other replicas must be there to repair it from
        where = self._world.disks[host].rot(self._dice)
        if where is None:
            return None
        self._world.tell(f"-- {where} flips")
        self._quiet_until = self._world.loop.time() + ROT_S
        self._world.rotted |= self._world.size.scrub_s > ROT_S / 2  # it may not be found before other faults begin
        return lambda: None

    def _rots(self, host: str) -> Callable[[], Any] | None:
        return (lambda: None) if flip_all_but_one(self._world, self._dice, host) else None

    def _blackout(self) -> Callable[[], Any]:
        world = self._world
        hosts = [*world.manager_hosts, *world.storage_hosts, *world.meta_hosts]
        undo = [self._power(host) for host in hosts]
        return lambda: [each() for each in undo if each is not None]

    def _surge(self, host: str) -> Callable[[], Any] | None:
        if not self._emptied_disks.spare():
            return None
        power_back = self._blackout()
        self._emptied_disks.empty(host)
        return power_back
