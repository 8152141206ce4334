"""Request-to-send: which answers of storage services may come to this process, and when.

While there is room, a request is sent with the right to answer at once. Otherwise the service announces its answer,
which is granted in its turn (`threefs/receive_budget.py`). The room of a process comes in slots that all processes of
its host share (`threefs/env/host_slots.py`). A process keeps the slots that it uses, so most reads ask nobody. It gives
back what it has not used for a while, and at once half of what it has when others wait.
"""

import asyncio
import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass

from threefs.env.clock import Clock
from threefs.env.host_slots import OwnSlots
from threefs.env.random import Random
from threefs.receive_budget import ReceiveBudget
from threefs.sender_limit import SenderLimit

_POLL_S = 0.002  # between two attempts to get a slot; some more by chance, so that processes take turns
_KEEP_S = 0.02  # for which a process keeps its slots at least
_IDLE_S = 0.5  # for which it keeps slots that it does not use and nobody wants
#: Without any slot for so long, a process receives from one sender all the same: a process that is stopped keeps its
#: slots, and must not stop others.
_OVERDRAFT_S = 1.0


@dataclass(slots=True)
class GrantCounters:
    """Counters of the grants of a process since it connected."""

    at_once: int = 0  # answers that were allowed with their request
    announced: int = 0  # answers that waited for a grant
    granted: int = 0
    waited_s: float = 0.0  # all of these together
    overdrafts: int = 0


class Announced:
    """A request whose answer waits for its grant, from the request to its end."""

    __slots__ = ("_grant", "_grants", "_since", "_taken", "sender", "size")

    def __init__(self, grants: "Grants", sender: str, size: int) -> None:
        self.sender = sender
        self.size = size
        self._grants = grants
        self._grant: Callable[[], None] | None = None
        self._since = 0.0
        self._taken = False

    @property
    def is_waiting(self) -> bool:
        return self._grant is not None

    @property
    def is_granted(self) -> bool:
        return self._taken

    def ready(self, grant: Callable[[], None]) -> None:
        """The service has announced the answer."""
        self._grant = grant
        self._since = self._grants.clock.monotonic()
        self._grants.announced(self)

    def granted(self) -> None:
        grant, self._grant = self._grant, None
        assert grant is not None, "only an announced answer is granted"
        self._taken = True
        counters = self._grants.counters
        counters.granted += 1
        counters.waited_s += self._grants.clock.monotonic() - self._since
        grant()

    def end(self) -> None:
        """The call has ended in any way."""
        if self._taken:
            self._grants.end(self.sender, self.size)
        elif self._grant is not None:
            self._grants.withdraw(self)


class Grants:
    """The grants of one event loop. Slots that it has belong to it alone."""

    def __init__(self, slots: OwnSlots, most_slots: int, slot_bytes: int, clock: Clock, random: Random) -> None:
        self.clock = clock
        self.counters = GrantCounters()
        self.limit = SenderLimit(slots.limit)
        self.budget: ReceiveBudget[Announced] = ReceiveBudget(slot_bytes)
        self._slots = slots
        self._most_slots = most_slots
        self._random = random
        self._held: list[int] = []
        self._overdraft = False  # one slot more than those held
        self._yield = 0  # slots to be given back as soon as they are free
        self._used = 0  # the most slots in use since the last look
        self._looked_at = 0.0
        self._idle_checked_at = 0.0
        self._starved = False  # answers wait for slots
        self._slotless_since = 0.0  # starved and without any slot; 0: not so
        self._timer: asyncio.TimerHandle | None = None
        self._poll_at = 0.0
        self._closed = False
        self._who = object()
        # A loop may end without a close. The slots are those of the process, and others of it need them.
        lost = weakref.finalize(self, _give_back, slots, self._held, self._who, os.getpid())
        lost.atexit = False

    # ---- of each request

    def begin(self, sender: str, size: int) -> Announced | None:
        """A request for `size` bytes will be sent. None: its answer may come at once, and `end` has to be called in the
        end. Otherwise the answer has to be announced."""
        if self.budget.try_take(sender, size) or self._take_more(sender, size):
            self.counters.at_once += 1
            return None
        return Announced(self, sender, size)

    def received(self, size: int, began: float) -> None:
        """An answer has come completely, whose first bytes came at `began`."""
        now = self.clock.monotonic()
        self.limit.received(now, size, now - began, self.budget.bytes - size)

    def end(self, sender: str, size: int) -> None:
        """A call whose answer was allowed to come has ended in any way."""
        budget = self.budget
        if self._used < budget.slots:  # else all are in use anyway
            self._used = max(self._used, budget.used_slots)
        budget.give(sender, size)
        if self._yield:
            self._give_free_slots()
        if budget.waiting:
            self._grant()

    # ---- of those that wait

    def announced(self, answer: Announced) -> None:
        self.counters.announced += 1
        self.budget.wait(answer.sender, answer.size, answer)
        self._grant()

    def withdraw(self, answer: Announced) -> None:
        self.budget.withdraw(answer.sender, answer)
        self._grant()  # a smaller one may be next

    def _grant(self) -> None:
        while self.budget.waiting:
            answer = self.budget.next()
            if answer is not None:
                answer.granted()
            elif not self._take_slot():
                break
        self._starve(self.budget.waiting > 0)

    # ---- slots

    def _take_more(self, sender: str, size: int) -> bool:
        """Take more slots until the answer fits."""
        while not self.budget.waiting and self._take_slot():
            if self.budget.try_take(sender, size):
                return True
        return False

    def _take_slot(self) -> bool:
        now = self.clock.monotonic()
        if self._closed or len(self._held) >= self._most_slots or now < self._poll_at or self._yield:
            return False
        slot = self._slots.take()
        if slot is None:
            self._poll_at = now + _POLL_S
            self.limit.binding(now)
            return False
        self._held.append(slot)
        self.budget.slots += 1
        self._watch()
        return True

    def _starve(self, starved: bool) -> None:
        """Note whether answers wait for slots, and let other processes know."""
        if starved == self._starved:
            return
        self._starved = starved
        if starved:
            self._slots.want(self._who)
        else:
            self._slots.unwant(self._who)
        self._watch()

    def _watch(self) -> None:
        """Look after the slots as long as there is anything to look after."""
        if self._timer is not None:
            if not self._starved:
                return
            self._timer.cancel()
        pause_s = _POLL_S + self._random.uniform(0.0, _POLL_S) if self._starved else _KEEP_S
        self._timer = asyncio.get_running_loop().call_later(pause_s, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self.clock.monotonic()
        if now - self._looked_at >= _KEEP_S:
            self._looked_at = now
            self._give_surplus(now)
        if self._starved:
            self._grant()
        if not self._starved or self.budget.slots:
            self._slotless_since = 0.0
        elif not self._slotless_since:
            self._slotless_since = now
        elif now - self._slotless_since >= _OVERDRAFT_S:
            self._overdraw()
        if self._held or self._overdraft or self._starved:
            self._watch()

    def _overdraw(self) -> None:
        self.counters.overdrafts += 1
        self._overdraft = True
        self.budget.slots += 1
        self._grant()

    def _give_surplus(self, now: float) -> None:
        """Plan to give back slots: half of all if others wait, and those that were not used for a while."""
        surplus = 0
        if self._slots.wanted_by_others(self._who):
            surplus = (len(self._held) + 1) // 2
        if now - self._idle_checked_at >= _IDLE_S:
            surplus = max(surplus, len(self._held) - max(self._used, self.budget.used_slots))
            self._idle_checked_at, self._used = now, 0
        above = sum(slot >= self._slots.limit.value for slot in self._held)  # the limit has been cut
        self._yield = max(surplus, above)
        self._give_free_slots()

    def _give_free_slots(self) -> None:
        budget = self.budget
        if self._overdraft and budget.slots > budget.used_slots:
            self._overdraft = False
            budget.slots -= 1
        while self._yield and budget.slots > budget.used_slots and self._held:
            self._yield -= 1
            budget.slots -= 1
            self._held.sort()
            self._slots.give(self._held.pop())
            self._poll_at = self.clock.monotonic() + 2 * _POLL_S  # those who wait for it come first

    def close(self) -> None:
        """Give all slots back. No call may be under way, or it does not matter any more."""
        self._closed = True
        self._starve(False)
        if self._timer is not None:
            self._timer.cancel()
        self.budget.slots = 0
        while self._held:
            self._slots.give(self._held.pop())


def _give_back(slots: OwnSlots, held: list[int], who: object, process: int) -> None:
    if os.getpid() == process:  # a forked child has none of them
        slots.unwant(who)
        while held:
            slots.give(held.pop())
