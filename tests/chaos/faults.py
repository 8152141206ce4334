"""What goes wrong in a chaos run: drawn from a seed, one or two faults at a time, a minority of the processes ill."""

import asyncio
import os
import random
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.cluster import SMALL, Cluster, Shape, in_namespaces, names_of
from tests.chaos.namespaces import HOST
from threefs.errors import InvalidArgument, NotFound, Retry, ThreefsError
from threefs.leases import client_lease_s
from threefs.rpc import methods
from threefs.wire import manager_pb2 as pb

KINDS = (
    *("kill", "kill", "kill", "stop", "stop", "oneway", "oneway", "link", "link", "cutoff", "restart", "slow", "full"),
    *("drain", "drain", "level", "level", "offline"),
    "everything",
)
#: An administrator moves members of chains. No process is ill by that, so another fault always strikes with it.
MOVES = ("drain", "level")
#: Only where there is a shared store, or are mounts.
WIDE_KINDS = ("member", "mount_kill", "mount_stop")
_NETWORK = ("oneway", "link", "cutoff")
_MOUNT = ("mount_kill", "mount_stop")
_WELL_S = 60.0  # on a busy machine processes start slowly, and some are put out for that
#: A target that was out because a link had failed may wait for so long before it returns.
_HOLD_OFF_PER_T = 30
_STOP_S = 30.0
_ASK_S = 60.0
_ASK_PAUSE_S = 0.3


@dataclass(frozen=True, slots=True)
class Fault:
    kind: str
    victim: str
    lasts_s: float
    peer: str = ""  # of "oneway": packets from the victim to it are lost; of "link" those both ways

    def __str__(self) -> str:
        return f"{self.kind} {self.victim}{' to ' if self.peer else ''}{self.peer} {self.lasts_s:.1f} s"

    @property
    def ill(self) -> set[str]:
        """Processes that another fault must leave alone meanwhile."""
        if self.kind in MOVES:
            return set()
        return {self.victim, self.peer} - {HOST, ""}


def draw(dice: random.Random, kind: str, shape: Shape = SMALL) -> Fault:
    lasts_s = dice.uniform(0.1, 2.0 * shape.lease_s)
    managers, storage, metas = names_of(shape)
    reachable = [*in_namespaces(shape), HOST]
    match kind:
        case "everything" | "level":
            return Fault(kind, "", lasts_s)
        case "drain" | "offline":
            return Fault(kind, dice.choice(storage), lasts_s)
        case "full":
            return Fault(kind, storage[-1], lasts_s)  # the one that has a disk of its own
        case "oneway":
            victim, peer = dice.sample(reachable, 2)
            return Fault(kind, victim, lasts_s, peer)
        case "link":  # between two storage processes, for so long that one of them is put out of its chains
            victim, peer = dice.sample(storage, 2)
            return Fault(kind, victim, dice.uniform(1.0, 6.0) * shape.lease_s, peer)
        case "cutoff":
            return Fault(kind, dice.choice(reachable[:-1]), lasts_s)
        case "member":
            return Fault(kind, f"m{dice.randrange(shape.etcd)}", lasts_s)
        case "mount_kill":
            return Fault(kind, f"mount{dice.randint(1, shape.mounts)}", lasts_s)
        case "mount_stop":  # half of them outlast the lease of the mount, and so the locks of its programs
            lasts_s *= 1 if dice.random() < 0.5 else client_lease_s(shape.lease_s) / shape.lease_s
            return Fault(kind, f"mount{dice.randint(1, shape.mounts)}", lasts_s)
        case "slow":
            return Fault(kind, dice.choice(storage), lasts_s)
    return Fault(kind, dice.choice([*storage, *metas, *managers]), lasts_s)


def draw_together(dice: random.Random, kinds: Sequence[str], shape: Shape = SMALL) -> list[Fault]:
    """One fault, or two of different processes, so that of every chain at least one replica is well."""
    faults = [draw(dice, dice.choice(kinds), shape)]
    storage = set(names_of(shape)[1])
    if faults[0].kind in MOVES or (dice.random() < 0.3 and faults[0].kind != "everything"):
        moves = MOVES if faults[0].kind in MOVES else ()
        other = draw(dice, dice.choice([kind for kind in kinds if kind not in ("everything", *moves)]), shape)
        ill = faults[0].ill | other.ill
        if not faults[0].ill & other.ill and not storage <= ill and "member" not in (faults[0].kind, other.kind):
            faults.append(other)
    return faults


class Faults:
    def __init__(self, cluster: Cluster, seed: int, tell: Callable[[str], None]) -> None:
        self.counts: dict[str, int] = {}
        self.problems: list[str] = []
        self.now = ""  # what is wrong at this moment
        self._cluster = cluster
        self._dice = random.Random(seed)
        self._tell = tell

    @property
    def kinds(self) -> list[str]:
        """Those that this machine allows."""
        cluster = self._cluster
        absent = set() if cluster.network is not None else set(_NETWORK)
        absent |= set() if cluster.mounted else {"full"}
        absent |= set() if cluster.shape.etcd else {"member"}
        absent |= set() if cluster.shape.mounts else set(_MOUNT)
        return [kind for kind in (*KINDS, *WIDE_KINDS) if kind not in absent]

    async def run(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        shape = self._cluster.shape
        faults = [draw(self._dice, "level", shape), draw(self._dice, "kill", shape)]  # the last process joins
        while loop.time() < end:
            await asyncio.sleep(self._dice.uniform(0.5, 2.0))
            await self._strike_all(faults)
            faults = draw_together(self._dice, self.kinds, shape)
            # Before the next ones all must be well again, so that a minority is ill at a time.
            hold_off_s = _HOLD_OFF_PER_T * shape.lease_s if "link" in self.counts else 0.0
            if wrong := await self._cluster.healthy(_WELL_S + hold_off_s):
                self._problem(f"I13: not well long after the fault: {wrong}")
            for ended in self._cluster.ended():
                self._problem(ended)

    async def strike(self, kind: str) -> None:
        if kind in self.kinds:
            await self._strike_all([draw(self._dice, kind, self._cluster.shape)])

    async def _strike_all(self, faults: Sequence[Fault]) -> None:
        self.now = "+".join(sorted({fault.kind for fault in faults}))
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                self.counts[fault.kind] = self.counts.get(fault.kind, 0) + 1
                self._tell(str(fault))
                group.create_task(getattr(self, f"_{fault.kind}")(fault))
        self.now = ""

    def _problem(self, text: str) -> None:
        self._tell(text)
        self.problems.append(text)

    async def _kill(self, fault: Fault) -> None:
        await asyncio.to_thread(self._cluster.kill, fault.victim)
        # Without a manager leases end: the supervisor of one that is alone is quick.
        alone = [fault.victim] == self._cluster.managers
        await asyncio.sleep(min(fault.lasts_s, 0.2) if alone else fault.lasts_s)
        self._cluster.launch(fault.victim)

    async def _restart(self, fault: Fault) -> None:
        name = fault.victim
        await asyncio.to_thread(self._cluster.programs[name].settle)
        self._cluster.signal(name, signal.SIGTERM)
        end = asyncio.get_running_loop().time() + _STOP_S
        while self._cluster.alive(name) and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.05)
        if self._cluster.alive(name):
            self._problem(f"{name} did not stop within {_STOP_S:.0f} s of SIGTERM")
            await asyncio.to_thread(self._cluster.kill, name)
        elif code := self._cluster.programs[name].process.returncode:
            self._problem(f"{name} ended with {code} after SIGTERM:\n{self._cluster.programs[name].log()}")
        self._cluster.launch(name)

    async def _stop(self, fault: Fault) -> None:
        self._cluster.signal(fault.victim, signal.SIGSTOP)
        await asyncio.sleep(fault.lasts_s)
        self._cluster.signal(fault.victim, signal.SIGCONT)

    async def _slow(self, fault: Fault) -> None:
        """Its processor and its disk: it runs a fifth of the time."""
        end = asyncio.get_running_loop().time() + fault.lasts_s
        while asyncio.get_running_loop().time() < end:
            self._cluster.signal(fault.victim, signal.SIGSTOP)
            await asyncio.sleep(0.08)
            self._cluster.signal(fault.victim, signal.SIGCONT)
            await asyncio.sleep(0.02)

    async def _oneway(self, fault: Fault) -> None:
        network = self._cluster.network
        assert network is not None
        network.block(fault.victim, fault.peer)
        await asyncio.sleep(fault.lasts_s)
        network.unblock(fault.victim, fault.peer)

    async def _link(self, fault: Fault) -> None:
        network = self._cluster.network
        assert network is not None
        network.block(fault.victim, fault.peer)
        network.block(fault.peer, fault.victim)
        await asyncio.sleep(fault.lasts_s)
        network.unblock(fault.victim, fault.peer)
        network.unblock(fault.peer, fault.victim)

    async def _cutoff(self, fault: Fault) -> None:
        network = self._cluster.network
        assert network is not None
        network.unplug(fault.victim)
        await asyncio.sleep(fault.lasts_s)
        network.plug(fault.victim)

    async def _full(self, fault: Fault) -> None:
        filler = self._cluster.mounted[0] / "filler"
        await asyncio.to_thread(_fill, filler)
        await asyncio.sleep(fault.lasts_s)
        filler.unlink()

    async def _drain(self, fault: Fault) -> None:
        """Its targets move to others; after the time it keeps those that have not begun to move."""
        node = self._cluster.node_id(fault.victim)
        await self._ask(methods.SET_DRAINING, pb.SetDrainingRequest(node_id=node, draining=True))
        await asyncio.sleep(fault.lasts_s)
        await self._ask(methods.SET_DRAINING, pb.SetDrainingRequest(node_id=node, draining=False))

    async def _level(self, _: Fault) -> None:
        """Targets move until all processes have equally many; those without any get some."""
        await self._ask(methods.REBALANCE, pb.RebalanceRequest())

    async def _offline(self, fault: Fault) -> None:
        """An administrator takes its targets out of service."""
        node = self._cluster.node_id(fault.victim)
        routing = (await self._ask(methods.GET_ROUTING, pb.GetRoutingRequest())).routing
        targets = [target.target_id for target in routing.targets if target.node_id == node]
        if not targets:
            return  # all have moved away
        try:
            await self._hold(targets, pb.HOLD_OFFLINE)
        except InvalidArgument:  # another fault is at its side, and a chain would have too few copies left
            return
        await asyncio.sleep(fault.lasts_s)
        await self._hold(targets, pb.HOLD_NONE)

    async def _hold(self, targets: Sequence[int], hold: pb.Hold) -> None:
        """Those that have moved away meanwhile are held no more."""
        left = list(targets)
        while left:
            try:
                await self._ask(methods.HOLD_TARGETS, pb.HoldTargetsRequest(targets=left, hold=hold))
                return
            except (NotFound, InvalidArgument):
                routing = (await self._ask(methods.GET_ROUTING, pb.GetRoutingRequest())).routing
                there = {target.target_id for target in routing.targets}
                if there.issuperset(left):
                    raise
                left = [target for target in left if target in there]

    async def _ask(self, method: methods.Method[methods.Req, methods.Rep], request: methods.Req) -> methods.Rep:
        """Until a manager has done it: one may be away at this moment."""
        end = asyncio.get_running_loop().time() + _ASK_S
        while True:
            try:
                return await self._cluster.ask(method, request)
            except ThreefsError as error:
                if error.retry is Retry.NEVER or asyncio.get_running_loop().time() > end:
                    raise
            await asyncio.sleep(_ASK_PAUSE_S)

    async def _everything(self, _: Fault) -> None:
        await asyncio.to_thread(self._cluster.kill_all)
        await asyncio.sleep(0.2)
        for name in self._cluster.programs:
            self._cluster.launch(name)

    async def _member(self, fault: Fault) -> None:
        """One of those that keep the shared store."""
        member = self._cluster.member(fault.victim)
        assert self._cluster.etcd is not None
        await asyncio.to_thread(member.kill)
        await asyncio.sleep(fault.lasts_s)
        self._cluster.etcd.launch(member)

    async def _mount_kill(self, fault: Fault) -> None:
        await asyncio.to_thread(self._cluster.kill_mount, fault.victim)
        await asyncio.sleep(fault.lasts_s)
        try:
            await asyncio.to_thread(self._cluster.mount, fault.victim)
        except AssertionError as error:
            self._problem(f"{fault.victim} was not mounted again: {error}")

    async def _mount_stop(self, fault: Fault) -> None:
        pid = self._cluster.mount_pid(fault.victim)
        os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(fault.lasts_s)
        os.kill(pid, signal.SIGCONT)


def _fill(file: Path) -> None:
    with file.open("wb", buffering=0) as out:
        try:
            while True:
                out.write(bytes(1 << 20))
        except OSError:
            pass
