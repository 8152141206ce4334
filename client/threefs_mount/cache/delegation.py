"""Delegations of directories: the mount knows all names of such a directory, so it answers by itself that a name is
absent. No I/O happens here.

Before a program creates or renames a file, the kernel looks the new name up, and mostly the name is absent. The mount
knows that without a call only while no other client adds names. So after a few such lookups, each followed by a create,
it requests a delegation of the directory (`threefs/leases.py`). The names that it keeps for a delegation are at
least those of the directory: the names of a listing that was fetched after the grant, and every name whose create was
under way when the delegation was requested or was sent later, whatever its outcome.

The answer to each create says whether the delegation still stands. That is valid for a moment from when the create was
*sent*, so answers may cross. A recalled delegation is dropped here before it is returned, because the client that waits
for it goes on at once.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from threefs.bounded_dict import BoundedDict
from threefs.leases import DELEGATION_S

#: Creates that followed a negative lookup, before a delegation of the directory is requested.
CREATES_BEFORE_REQUEST = 8
#: Names of one directory: a larger one is not worth its listing. Names of all together bound the memory.
MAX_NAMES = 16_384
MAX_NAMES_TOGETHER = 65_536
MAX_DELEGATIONS = 256
#: A delegation without a create for this long is returned: it would only make other clients wait.
IDLE_S = 2 * DELEGATION_S
#: No delegation of a directory is requested for this long after a recall, or when it had too many names.
PAUSE_S = 10.0
LARGE_PAUSE_S = 60.0
_MAX_CANDIDATES = 1024
_CANDIDATE_S = 1.0  # creates that are further apart gain nothing from a delegation
_MAX_NAME_BYTES = 255  # a lookup of a longer name fails with another error than "absent"
_PERMANENT = 0  # a serial: the name stays, whatever is removed


@dataclass(slots=True, eq=False)
class Delegation:
    directory: int
    number: int
    serial: int  # of all names that were listed
    names: dict[bytes, int] = field(default_factory=dict)  # name -> serial of its last create
    granted: bool = False
    complete: bool = False  # no name is missing
    confirmed_s: float = 0.0  # it stood at that time or later


@dataclass(slots=True, eq=False)
class PendingCreate:
    """A name whose create is under way."""

    directory: int
    name: bytes
    request: int  # the number of its mutation
    sent_s: float
    delegation: Delegation | None  # granted before the create was sent


@dataclass(slots=True, eq=False)
class PendingUnlink:
    delegation: Delegation
    name: bytes
    serial: int


@dataclass(slots=True)
class _Candidate:
    """A directory without a delegation."""

    negative_lookups: int = 0  # that no create has followed yet
    creates: int = 0
    used_s: float = 0.0
    pause_until_s: float = 0.0


class DirectoryDelegations:
    """`request(directory)` must request a delegation. `return_(directory, number)` must return one, which was dropped
    here before."""

    def __init__(
        self,
        request: Callable[[int], None],
        return_: Callable[[int, int], None],
        *,
        enabled: bool = True,
        creates_before_request: int = CREATES_BEFORE_REQUEST,
    ) -> None:
        self._request = request
        self._return = return_
        self._enabled = enabled
        self._creates_before_request = creates_before_request
        self._delegations: dict[int, Delegation] = {}
        self._requested: set[int] = set()  # by `request`, and not begun yet
        self._name_count = 0  # in all delegations
        self._pending_creates: dict[PendingCreate, None] = {}
        self._serial = _PERMANENT
        self._newest_unknown_outcome = 0  # the highest mutation number whose outcome is not known
        self._candidates = BoundedDict[int, _Candidate](_MAX_CANDIDATES)

    def __len__(self) -> int:
        return len(self._delegations)

    # ---- lookups ----

    def is_negative(self, directory: int, name: bytes, now_s: float) -> bool:
        """Whether the name is surely absent now."""
        delegation = self._delegations.get(directory)
        return (
            delegation is not None
            and delegation.complete
            and now_s < delegation.confirmed_s + DELEGATION_S
            and name not in delegation.names
            and len(name) <= _MAX_NAME_BYTES
        )

    def record_negative_lookup(self, directory: int, now_s: float) -> None:
        """The cluster has answered that a name is absent."""
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

    # ---- creates ----

    def begin_create(self, directory: int, name: bytes, request: int, now_s: float) -> PendingCreate:
        """A create is about to be sent under that mutation number. Call `create_done`, `create_found_existing` or
        `create_failed` with what this returns."""
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
        """The answer came. `number` is that of this mount's delegation if it stands, `recalled` if it was recalled;
        else 0."""
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
        elif create.delegation is delegation:  # it has ended, or the answer is a repeat
            self._drop(delegation)

    def _confirm(self, delegation: Delegation, sent_s: float, now_s: float) -> None:
        """The delegation stood at `sent_s` or later. After a silence longer than `IDLE_S` it is dropped, because it may
        have ended and been granted again in between."""
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
        """Nothing was created, because the name existed."""
        del self._pending_creates[create]

    def create_failed(self, create: PendingCreate) -> None:
        """The outcome is not known: the create may have taken effect, or may still do so."""
        del self._pending_creates[create]
        self._newest_unknown_outcome = max(self._newest_unknown_outcome, create.request)
        delegation = self._delegations.get(create.directory)
        if delegation is not None and create.name in delegation.names:
            delegation.names[create.name] = _PERMANENT

    # ---- removals ----

    def begin_unlink(self, directory: int, name: bytes) -> PendingUnlink | None:
        """A removal is about to be sent. Call `unlink_done` with what this returns if it succeeds."""
        delegation = self._delegations.get(directory)
        serial = _PERMANENT if delegation is None else delegation.names.get(name, _PERMANENT)
        if delegation is None or serial == _PERMANENT:
            return None
        if any(each.name == name and each.directory == directory for each in self._pending_creates):
            return None
        return PendingUnlink(delegation, name, serial)

    def unlink_done(self, unlink: PendingUnlink | None) -> None:
        """The name is absent, unless a create of it was sent after the removal."""
        if unlink is None:
            return
        delegation = unlink.delegation
        if (
            self._delegations.get(delegation.directory) is delegation
            and delegation.names.get(unlink.name) == unlink.serial
        ):
            del delegation.names[unlink.name]
            self._name_count -= 1

    # ---- requests and returns ----

    def begin_request(self, directory: int, number: int, now_s: float) -> tuple[Delegation, int]:
        """The delegation is about to be requested under that number. Returns it, and the oldest mutation number to name
        in the request: a create of an older one that still arrives counts as a create of another client.
        """
        assert directory in self._requested and directory not in self._delegations, "one request at a time"
        self._requested.discard(directory)
        self._serial += 1
        delegation = self._delegations[directory] = Delegation(directory, number, self._serial)
        pending = [create for create in self._pending_creates if create.directory == directory]
        for create in pending:
            if self._delegations.get(directory) is delegation:  # else there is no room for its names
                self._serial += 1
                self._insert(delegation, create.name, self._serial, now_s)
        oldest = min([create.request for create in pending], default=number)
        return delegation, max(oldest, self._newest_unknown_outcome + 1)

    def request_answered(self, delegation: Delegation, number: int, asked_s: float, now_s: float) -> bool:
        """The answer came, with the number of the granted delegation. Returns whether it is granted and still wanted;
        then all names must be listed."""
        if self._delegations.get(delegation.directory) is not delegation:
            return False
        if number != delegation.number:
            self._drop(delegation, now_s + PAUSE_S)
            return False
        delegation.granted = True
        self._confirm(delegation, asked_s, now_s)
        return self._delegations.get(delegation.directory) is delegation

    def insert_names(self, delegation: Delegation, names: Iterable[bytes], now_s: float, *, more: bool) -> bool:
        """Insert names from a listing that was fetched after the grant. Returns whether the delegation is still
        wanted."""
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
        """The delegation could not be requested, or its names could not be listed."""
        if self._delegations.get(delegation.directory) is delegation:
            self._drop(delegation, now_s + PAUSE_S)

    def expire(self, now_s: float) -> bool:
        """Drop the delegations that are idle. Returns whether any are left."""
        for delegation in list(self._delegations.values()):
            if delegation.granted and now_s - delegation.confirmed_s > IDLE_S:
                self._drop(delegation)
        return bool(self._delegations)

    def return_all(self) -> None:
        for delegation in list(self._delegations.values()):
            self._drop(delegation)

    def _drop(self, delegation: Delegation, pause_until_s: float = 0.0) -> None:
        """Rely on the delegation no more, and return it."""
        del self._delegations[delegation.directory]
        self._name_count -= len(delegation.names)
        if pause_until_s:
            self._candidate(delegation.directory, pause_until_s).pause_until_s = pause_until_s
        self._return(delegation.directory, delegation.number)
