"""Directories whose names are known here, all of them, so that nobody has to be asked whether a name is absent. No I/O
happens here.

Programs that make or rename files look first, and the kernel asks us; mostly nothing is there. That is known without a
call only as long as nobody else adds names: so after a few such looks the mount asks for a delegation of the directory
(`threefs/delegations.py`). What is kept is no less than its names: those of a listing that was asked for when the
delegation had been granted, and all that this mount has asked for since it asked for that, or was waiting for then,
whatever came of it.

The answer to each name that is added says whether the delegation stands. It is believed for a moment from when the
name was *sent*, so answers may cross. Once it was recalled, it is given up here before it is given back, because
whoever waits for it goes on at once.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from threefs.bounded_dict import BoundedDict
from threefs.delegations import CLAIM_S

#: So many times a name was added after a look that found nothing.
FIRST_NAMES = 8
#: A directory of more is not worth a listing, and all together bound the memory.
MOST_NAMES = 16_384
MOST_NAMES_TOGETHER = 65_536
MOST_CLAIMS = 256
#: Without a name that was added for so long, a claim only makes others wait.
IDLE_S = 2 * CLAIM_S
#: For so long no directory is claimed again that others use, or that has too many names.
PAUSE_S = 10.0
LARGE_PAUSE_S = 60.0
_MOST_SEEN = 1024
_FORGOTTEN_S = 1.0  # names that come so seldom gain nothing
_LONGEST_NAME_BYTES = 255  # of longer ones something else is wrong than that they are absent
_FOR_EVER = 0  # stands for an addition: whatever is removed, the name stays


@dataclass(slots=True, eq=False)
class Delegation:
    directory: int
    number: int
    serial: int  # stands for an addition: of all names that were listed
    names: dict[bytes, int] = field(default_factory=dict)  # with the last addition
    granted: bool = False
    complete: bool = False  # no name is missing
    stands_s: float = 0.0  # it did at that time, or later


@dataclass(slots=True, eq=False)
class PendingCreate:
    """A name that is on its way into a directory."""

    directory: int
    name: bytes
    request: int  # the number of its mutation
    sent_s: float
    claim: Delegation | None  # that had been granted before


@dataclass(slots=True, eq=False)
class PendingUnlink:
    claim: Delegation
    name: bytes
    serial: int


@dataclass(slots=True)
class _Seen:
    """Of a directory that is not claimed."""

    looks: int = 0  # that found nothing, and no name was added since
    names: int = 0
    last_s: float = 0.0
    pause_until_s: float = 0.0


class DirectoryDelegations:
    """`start` is told which directory to claim, `give_back` of which one which claim is not relied on any more."""

    def __init__(
        self,
        start: Callable[[int], None],
        give_back: Callable[[int, int], None],
        *,
        enabled: bool = True,
        first_names: int = FIRST_NAMES,
    ) -> None:
        self._start = start
        self._give_back = give_back
        self._enabled = enabled
        self._first_names = first_names
        self._claims: dict[int, Delegation] = {}
        self._wanted: set[int] = set()  # told to `start`
        self._names = 0  # of all claims
        self._under_way: dict[PendingCreate, None] = {}
        self._serial = _FOR_EVER
        self._newest_failed = 0  # the highest request whose outcome is not sure
        self._seen = BoundedDict[int, _Seen](_MOST_SEEN)

    def __len__(self) -> int:
        return len(self._claims)

    # ---- looks ----

    def lacks(self, directory: int, name: bytes, now_s: float) -> bool:
        """Whether it is sure that nothing has that name now."""
        claim = self._claims.get(directory)
        return (
            claim is not None
            and claim.complete
            and now_s < claim.stands_s + CLAIM_S
            and name not in claim.names
            and len(name) <= _LONGEST_NAME_BYTES
        )

    def absent(self, directory: int, now_s: float) -> None:
        """Somebody was asked, and nothing had the name."""
        if self._enabled and directory not in self._claims:
            seen = self._note(directory, now_s)
            seen.looks = min(seen.looks + 1, self._first_names)

    def _note(self, directory: int, now_s: float) -> _Seen:
        seen = self._seen.get(directory) or _Seen()
        self._seen.put(directory, seen)
        if now_s - seen.last_s > _FORGOTTEN_S:
            seen.looks = seen.names = 0
        seen.last_s = now_s
        return seen

    # ---- names that come ----

    def adding(self, directory: int, name: bytes, request: int, now_s: float) -> PendingCreate:
        """It is about to be sent; `added` or `failed` says what came of it."""
        claim = self._claims.get(directory)
        addition = PendingCreate(
            directory, name, request, now_s, claim if claim is not None and claim.granted else None
        )
        self._under_way[addition] = None
        if claim is not None:
            self._serial += 1
            self._keep(claim, name, self._serial, now_s)
        return addition

    def _keep(self, claim: Delegation, name: bytes, serial: int, now_s: float) -> None:
        before = len(claim.names)
        if claim.names.setdefault(name, serial) != _FOR_EVER:
            claim.names[name] = serial
        self._names += len(claim.names) - before
        if len(claim.names) > MOST_NAMES or self._names > MOST_NAMES_TOGETHER:
            self._end(claim, now_s + LARGE_PAUSE_S)

    def added(self, addition: PendingCreate, number: int, recalled: int, now_s: float) -> None:
        """The answer says that a claim of ours stands, by its number, or that it has been recalled."""
        del self._under_way[addition]
        claim = self._claims.get(addition.directory)
        if recalled:
            if claim is not None and claim.number == recalled:
                self._end(claim, now_s + PAUSE_S)
            else:
                self._give_back(addition.directory, recalled)
        elif claim is None:
            self._count(addition.directory, now_s)
        elif claim.number == number:
            self._stands(claim, addition.sent_s, now_s)
        elif addition.claim is claim:  # it has ended, or the answer is a repeated one
            self._end(claim)

    def _stands(self, claim: Delegation, sent_s: float, now_s: float) -> None:
        """So it was seen after that time. Nothing is made of it after a silence in which anything may have happened."""
        if claim.stands_s and now_s - claim.stands_s > IDLE_S:
            self._end(claim)
        else:
            claim.stands_s = max(claim.stands_s, sent_s)

    def _count(self, directory: int, now_s: float) -> None:
        if not self._enabled:
            return
        seen = self._note(directory, now_s)
        if not seen.looks:
            return
        seen.looks -= 1
        seen.names += 1
        if (
            seen.names >= self._first_names
            and now_s >= seen.pause_until_s
            and directory not in self._wanted
            and len(self._claims) + len(self._wanted) < MOST_CLAIMS
        ):
            self._wanted.add(directory)
            self._start(directory)

    def found(self, addition: PendingCreate) -> None:
        """The name was there already."""
        del self._under_way[addition]

    def failed(self, addition: PendingCreate) -> None:
        """Whether it took effect is not known here, nor whether it will."""
        del self._under_way[addition]
        self._newest_failed = max(self._newest_failed, addition.request)
        claim = self._claims.get(addition.directory)
        if claim is not None and addition.name in claim.names:
            claim.names[addition.name] = _FOR_EVER

    # ---- names that go ----

    def removing(self, directory: int, name: bytes) -> PendingUnlink | None:
        """It is about to be sent; tell `removed` if it was done."""
        claim = self._claims.get(directory)
        serial = _FOR_EVER if claim is None else claim.names.get(name, _FOR_EVER)
        if claim is None or serial == _FOR_EVER:
            return None
        if any(one.name == name and one.directory == directory for one in self._under_way):
            return None
        return PendingUnlink(claim, name, serial)

    def removed(self, removal: PendingUnlink | None) -> None:
        """Unless the name was asked for again since it was sent."""
        if removal is None:
            return
        claim = removal.claim
        if self._claims.get(claim.directory) is claim and claim.names.get(removal.name) == removal.serial:
            del claim.names[removal.name]
            self._names -= 1

    # ---- claims ----

    def ask(self, directory: int, number: int, now_s: float) -> tuple[Delegation, int]:
        """The claim is about to be asked for under that number: with it, the oldest request whose outcome is awaited.

        What older ones may still do counts as done by somebody else.
        """
        assert directory in self._wanted and directory not in self._claims, "one claim at a time"
        self._wanted.discard(directory)
        self._serial += 1
        claim = self._claims[directory] = Delegation(directory, number, self._serial)
        mine = [one for one in self._under_way if one.directory == directory]
        for one in mine:
            self._serial += 1
            self._keep(claim, one.name, self._serial, now_s)
        oldest = min([one.request for one in mine], default=number)
        return claim, max(oldest, self._newest_failed + 1)

    def answered(self, claim: Delegation, number: int, asked_s: float, now_s: float) -> bool:
        """Whether it was granted and is still wanted; then all names are to be listed."""
        if self._claims.get(claim.directory) is not claim:
            return False
        if number != claim.number:
            self._end(claim, now_s + PAUSE_S)
            return False
        claim.granted = True
        self._stands(claim, asked_s, now_s)
        return self._claims.get(claim.directory) is claim

    def listed(self, claim: Delegation, names: Iterable[bytes], now_s: float, *, more: bool) -> bool:
        """Names that the directory has had since the claim was granted. Whether the claim is still wanted."""
        for name in names:
            if self._claims.get(claim.directory) is not claim:
                return False
            if name not in claim.names:
                self._keep(claim, name, claim.serial, now_s)
        if self._claims.get(claim.directory) is not claim:
            return False
        claim.complete = not more
        return True

    def unknown(self, claim: Delegation, now_s: float) -> None:
        """It could not be asked for, or its names could not."""
        if self._claims.get(claim.directory) is claim:
            self._end(claim, now_s + PAUSE_S)

    def expire(self, now_s: float) -> bool:
        """Give up what was not used for a while. Whether there is more."""
        for claim in list(self._claims.values()):
            if claim.granted and now_s - claim.stands_s > IDLE_S:
                self._end(claim)
        return bool(self._claims)

    def clear(self) -> None:
        for claim in list(self._claims.values()):
            self._end(claim)

    def _end(self, claim: Delegation, pause_until_s: float = 0.0) -> None:
        """Nobody relies on it from now on."""
        del self._claims[claim.directory]
        self._names -= len(claim.names)
        if pause_until_s:
            self._note(claim.directory, pause_until_s).pause_until_s = pause_until_s
        self._give_back(claim.directory, claim.number)
