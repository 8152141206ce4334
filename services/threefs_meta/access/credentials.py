"""Credentials: the user and the groups for whom a request is made."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from threefs.errors import InvalidArgument
from threefs.wire import meta_pb2 as pb

MAX_GROUPS = 1024


@dataclass(frozen=True, slots=True)
class Credentials:
    uid: int = 0  # new inodes belong to this user and group
    gid: int = 0
    groups: frozenset[int] = frozenset()
    is_super: bool = True  # every access is permitted

    def in_group(self, gid: int) -> bool:
        return gid == self.gid or gid in self.groups

    def owns(self, inode: pb.Inode) -> bool:
        """Whether the user may do what only the owner of the inode may do."""
        return self.is_super or self.uid == inode.uid


#: The service itself. (A request from outside that names no caller gets NOBODY before any operation sees it.)
TRUSTED = Credentials()
NOBODY = pb.Caller(uid=65534, gid=65534)


class NamesCaller(Protocol):
    @property
    def caller(self) -> pb.Caller: ...

    def HasField(self, field_name: str) -> bool: ...  # noqa: N802


def actor_of(request: NamesCaller) -> Credentials:
    """Raises InvalidArgument."""
    if not request.HasField("caller"):
        return TRUSTED
    caller = request.caller
    groups = caller.groups
    if not groups:
        return _user(caller.uid, caller.gid)
    if len(groups) > MAX_GROUPS:
        raise InvalidArgument(f"a caller has at most {MAX_GROUPS} groups, not {len(groups)}")
    return _user(caller.uid, caller.gid, tuple(groups))


@lru_cache(maxsize=256)
def _user(uid: int, gid: int, groups: tuple[int, ...] = ()) -> Credentials:
    """Cached, because few users make most requests."""
    return Credentials(uid, gid, frozenset(groups), uid == 0)


class Makes(NamesCaller, Protocol):
    @property
    def uid(self) -> int: ...

    @property
    def gid(self) -> int: ...


def maker_of(request: Makes) -> Credentials:
    """The owner of new inodes: the caller, or the one whom a trusted program names. Raises InvalidArgument."""
    return made_by(actor_of(request), request)


def made_by(actor: Credentials, request: Makes) -> Credentials:
    """The same, where the actor is known."""
    return _named(request.uid, request.gid) if actor is TRUSTED else actor


@lru_cache(maxsize=256)
def _named(uid: int, gid: int) -> Credentials:
    return Credentials(uid, gid)
