"""Directories whose names are known here, all of them, so that nobody has to be asked whether a name is absent. No I/O
happens here.

Programs that make or rename files look first, and the kernel asks us; mostly nothing is there. That is known without a
call only as long as nobody else adds names: so after a few such looks the mount asks for a delegation of the directory
(`threefs/leases.py`). What is kept is no less than its names: those of a listing that was asked for when the
delegation had been granted, and all that this mount has asked for since it asked for that, or was waiting for then,
whatever came of it.

The answer to each name that is added says whether the delegation stands. It is believed for a moment from when the
name was *sent*, so answers may cross. Once it was recalled, it is given up here before it is given back, because
whoever waits for it goes on at once.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from threefs.bounded_dict import BoundedDict
from threefs.leases import DELEGATION_S

#: So many times a name was added after a look that found nothing.
CREATES_BEFORE_REQUEST = 8
#: A directory of more is not worth a listing, and all together bound the memory.
MAX_NAMES = 16_384
MAX_NAMES_TOGETHER = 65_536
MAX_DELEGATIONS = 256
#: Without a name that was added for so long, a claim only makes others wait.
IDLE_S = 2 * DELEGATION_S
#: For so long no directory is claimed again that others use, or that has too many names.
PAUSE_S = 10.0
LARGE_PAUSE_S = 60.0
_MAX_CANDIDATES = 1024
_CANDIDATE_S = 1.0  # names that come so seldom gain nothing
_MAX_NAME_BYTES = 255  # of longer ones something else is wrong than that they are absent
_PERMANENT = 0  # stands for an addition: whatever is removed, the name stays


@dataclass(slots=True, eq=False)
class Delegation:
    directory: int
    number: int
    serial: int  # stands for an addition: of all names that were listed
    names: dict[bytes, int] = field(default_factory=dict)  # with the last addition
    granted: bool = False
    complete: bool = False  # no name is missing
    confirmed_s: float = 0.0  # it did at that time, or later


@dataclass(slots=True, eq=False)
class PendingCreate:
    """A name that is on its way into a directory."""

    directory: int
    name: bytes
    request: int  # the number of its mutation
    sent_s: float
    delegation: Delegation | None  # that had been granted before


@dataclass(slots=True, eq=False)
class PendingUnlink:
    delegation: Delegation
    name: bytes
    serial: int


@dataclass(slots=True)
class _Candidate:
    """Of a directory that is not claimed."""

    negative_lookups: int = 0  # that found nothing, and no name was added since
    creates: int = 0
    used_s: float = 0.0
    pause_until_s: float = 0.0


class DirectoryDelegations:
    """`start` is told which directory to claim, `give_back` of which one which claim is not relied on any more."""

    def __init__(
        self,
        start: Callable[[int], None],
        give_back: Callable[[int, int], None],
        *,
        enabled: bool = True,
        creates_before_request: int = CREATES_BEFORE_REQUEST,
    ) -> None:
        self._request = start
        self._return = give_back
        self._enabled = enabled
        self._creates_before_request = creates_before_request
        self._delegations: dict[int, Delegation] = {}
        self._requested: set[int] = set()  # told to `start`
        self._name_count = 0  # of all claims
        self._pending_creates: dict[PendingCreate, None] = {}
        self._serial = _PERMANENT
        self._newest_unknown_outcome = 0  # the highest request whose outcome is not sure
        self._candidates = BoundedDict[int, _Candidate](_MAX_CANDIDATES)

    def __len__(self) -> int:
        return len(self._delegations)

    # ---- looks ----

    def is_negative(self, directory: int, name: bytes, now_s: float) -> bool:
        """Whether it is sure that nothing has that name now."""
        delegation = self._delegations.get(directory)
        return (
            delegation is not None
            and delegation.complete
            and now_s < delegation.confirmed_s + DELEGATION_S
            and name not in delegation.names
            and len(name) <= _MAX_NAME_BYTES
        )

    def record_negative_lookup(self, directory: int, now_s: float) -> None:
        """Somebody was asked, and nothing had the name."""
        if self._enabled and directory not in self._delegations:
            candidate = self._candidate(directory, now_s)
            candidate.negative_lookups = min(candidate.negative_lookups + 1, self._creates_before_request)

    def _candidate(self, directory: int, now_s: float) -> _Candidate:
        candidate = self._candidates.get(directory) or _Candidate()
        self._candidates.put(directory, candidate)
        if now_s - candidate.used_s > _CANDIDATE_S:
            candidate.negative_lookups = candidate.creates = 0
        candidate.used_s = now_s
        return candidate

    # ---- names that come ----

    def begin_create(self, directory: int, name: bytes, request: int, now_s: float) -> PendingCreate:
        """It is about to be sent; `added` or `failed` says what came of it."""
        delegation = self._delegations.get(directory)
        create = PendingCreate(
            directory, name, request, now_s, delegation if delegation is not None and delegation.granted else None
        )
        self._pending_creates[create] = None
        if delegation is not None:
            self._serial += 1
            self._insert(delegation, name, self._serial, now_s)
        return create

    def _insert(self, delegation: Delegation, name: bytes, serial: int, now_s: float) -> None:
        before = len(delegation.names)
        if delegation.names.setdefault(name, serial) != _PERMANENT:
            delegation.names[name] = serial
        self._name_count += len(delegation.names) - before
        if len(delegation.names) > MAX_NAMES or self._name_count > MAX_NAMES_TOGETHER:
            self._drop(delegation, now_s + LARGE_PAUSE_S)

    def create_done(self, create: PendingCreate, number: int, recalled: int, now_s: float) -> None:
        """The answer says that a claim of ours stands, by its number, or that it has been recalled."""
        del self._pending_creates[create]
        delegation = self._delegations.get(create.directory)
        if recalled:
            if delegation is not None and delegation.number == recalled:
                self._drop(delegation, now_s + PAUSE_S)
            else:
                self._return(create.directory, recalled)
        elif delegation is None:
            self._count_create(create.directory, now_s)
        elif delegation.number == number:
            self._confirm(delegation, create.sent_s, now_s)
        elif create.delegation is delegation:  # it has ended, or the answer is a repeated one
            self._drop(delegation)

    def _confirm(self, delegation: Delegation, sent_s: float, now_s: float) -> None:
        """So it was seen after that time. Nothing is made of it after a silence in which anything may have happened."""
        if delegation.confirmed_s and now_s - delegation.confirmed_s > IDLE_S:
            self._drop(delegation)
        else:
            delegation.confirmed_s = max(delegation.confirmed_s, sent_s)

    def _count_create(self, directory: int, now_s: float) -> None:
        if not self._enabled:
            return
        candidate = self._candidate(directory, now_s)
        if not candidate.negative_lookups:
            return
        candidate.negative_lookups -= 1
        candidate.creates += 1
        if (
            candidate.creates >= self._creates_before_request
            and now_s >= candidate.pause_until_s
            and directory not in self._requested
            and len(self._delegations) + len(self._requested) < MAX_DELEGATIONS
        ):
            self._requested.add(directory)
            self._request(directory)

    def create_found_existing(self, create: PendingCreate) -> None:
        """The name was there already."""
        del self._pending_creates[create]

    def create_failed(self, create: PendingCreate) -> None:
        """Whether it took effect is not known here, nor whether it will."""
        del self._pending_creates[create]
        self._newest_unknown_outcome = max(self._newest_unknown_outcome, create.request)
        delegation = self._delegations.get(create.directory)
        if delegation is not None and create.name in delegation.names:
            delegation.names[create.name] = _PERMANENT

    # ---- names that go ----

    def begin_unlink(self, directory: int, name: bytes) -> PendingUnlink | None:
        """It is about to be sent; tell `removed` if it was done."""
        delegation = self._delegations.get(directory)
        serial = _PERMANENT if delegation is None else delegation.names.get(name, _PERMANENT)
        if delegation is None or serial == _PERMANENT:
            return None
        if any(one.name == name and one.directory == directory for one in self._pending_creates):
            return None
        return PendingUnlink(delegation, name, serial)

    def unlink_done(self, unlink: PendingUnlink | None) -> None:
        """Unless the name was asked for again since it was sent."""
        if unlink is None:
            return
        delegation = unlink.delegation
        if (
            self._delegations.get(delegation.directory) is delegation
            and delegation.names.get(unlink.name) == unlink.serial
        ):
            del delegation.names[unlink.name]
            self._name_count -= 1

    # ---- claims ----

    def begin_request(self, directory: int, number: int, now_s: float) -> tuple[Delegation, int]:
        """The claim is about to be asked for under that number: with it, the oldest request whose outcome is awaited.

        What older ones may still do counts as done by somebody else.
        """
        assert directory in self._requested and directory not in self._delegations, "one claim at a time"
        self._requested.discard(directory)
        self._serial += 1
        delegation = self._delegations[directory] = Delegation(directory, number, self._serial)
        mine = [one for one in self._pending_creates if one.directory == directory]
        for one in mine:
            self._serial += 1
            self._insert(delegation, one.name, self._serial, now_s)
        oldest = min([one.request for one in mine], default=number)
        return delegation, max(oldest, self._newest_unknown_outcome + 1)

    def request_answered(self, delegation: Delegation, number: int, asked_s: float, now_s: float) -> bool:
        """Whether it was granted and is still wanted; then all names are to be listed."""
        if self._delegations.get(delegation.directory) is not delegation:
            return False
        if number != delegation.number:
            self._drop(delegation, now_s + PAUSE_S)
            return False
        delegation.granted = True
        self._confirm(delegation, asked_s, now_s)
        return self._delegations.get(delegation.directory) is delegation

    def insert_names(self, delegation: Delegation, names: Iterable[bytes], now_s: float, *, more: bool) -> bool:
        """Names that the directory has had since the claim was granted. Whether the claim is still wanted."""
        for name in names:
            if self._delegations.get(delegation.directory) is not delegation:
                return False
            if name not in delegation.names:
                self._insert(delegation, name, delegation.serial, now_s)
        if self._delegations.get(delegation.directory) is not delegation:
            return False
        delegation.complete = not more
        return True

    def request_failed(self, delegation: Delegation, now_s: float) -> None:
        """It could not be asked for, or its names could not."""
        if self._delegations.get(delegation.directory) is delegation:
            self._drop(delegation, now_s + PAUSE_S)

    def expire(self, now_s: float) -> bool:
        """Give up what was not used for a while. Whether there is more."""
        for delegation in list(self._delegations.values()):
            if delegation.granted and now_s - delegation.confirmed_s > IDLE_S:
                self._drop(delegation)
        return bool(self._delegations)

    def return_all(self) -> None:
        for delegation in list(self._delegations.values()):
            self._drop(delegation)

    def _drop(self, delegation: Delegation, pause_until_s: float = 0.0) -> None:
        """Nobody relies on it from now on."""
        del self._delegations[delegation.directory]
        self._name_count -= len(delegation.names)
        if pause_until_s:
            self._candidate(delegation.directory, pause_until_s).pause_until_s = pause_until_s
        self._return(delegation.directory, delegation.number)
