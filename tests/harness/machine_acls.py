"""Rules of the state machine about access control lists; what they grant is tried by rules as somebody else."""

import struct
from operator import methodcaller

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.harness.differential_trees import CLIENT, DRIVERS, PATHS, USER, TwoTrees

_KINDS = st.sampled_from(("system.posix_acl_access", "system.posix_acl_default"))
_NO_ID = 0xFFFFFFFF
_OWNER, _USER, _GROUP, _NAMED_GROUP, _MASK, _OTHERS = 1, 2, 4, 8, 16, 32
_GRANTS = st.integers(0, 7)
_NAMED = st.dictionaries(st.sampled_from((USER, USER + 1)), _GRANTS, max_size=2)


def _packed(
    single: tuple[int, int, int], users: dict[int, int], groups: dict[int, int], mask: int | None, lost: int
) -> bytes:
    rows = [
        (_OWNER, single[0], _NO_ID),
        *((_USER, grant, who) for who, grant in sorted(users.items())),
        (_GROUP, single[1], _NO_ID),
        *((_NAMED_GROUP, grant, who) for who, grant in sorted(groups.items())),
        *([] if mask is None else [(_MASK, mask, _NO_ID)]),
        (_OTHERS, single[2], _NO_ID),
    ]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *row) for row in rows if row[0] != lost)


#: Some lack what a list must have.
_LISTS = st.builds(
    _packed,
    st.tuples(_GRANTS, _GRANTS, _GRANTS),
    _NAMED,
    _NAMED,
    st.one_of(_GRANTS, _GRANTS, _GRANTS, st.none()),
    st.sampled_from((0, 0, 0, 0, 0, 0, _OWNER, _GROUP, _OTHERS)),
)


class AclsRules(TwoTrees):
    @rule(driver=DRIVERS, path=PATHS, kind=_KINDS, acl=_LISTS)
    def set_acl(self, driver: str, path: str, kind: str, acl: bytes) -> None:
        self.same(driver, lambda tree: tree.setxattr(path, kind, acl, 0))

    @rule(driver=DRIVERS, path=PATHS, kind=_KINDS, acl=_LISTS)
    def set_acl_as_user(self, driver: str, path: str, kind: str, acl: bytes) -> None:
        self.same(driver, lambda tree: tree.setxattr(path, kind, acl, 0), uid=USER)

    @rule(driver=DRIVERS, path=PATHS, kind=_KINDS)
    def get_acl(self, driver: str, path: str, kind: str) -> None:
        self.same(driver, lambda tree: tree.getxattr(path, kind))

    @rule(driver=DRIVERS, path=PATHS, kind=_KINDS)
    def remove_acl(self, driver: str, path: str, kind: str) -> None:
        self.same(driver, lambda tree: tree.removexattr(path, kind))

    @rule(driver=DRIVERS, top=PATHS, acl=_LISTS, mode=st.integers(0, 0o777))
    def inherit_acl(self, driver: str, top: str, acl: bytes, mode: int) -> None:
        if self.same(driver, lambda tree: tree.setxattr(top, "system.posix_acl_default", acl, 0)).error:
            return
        self.same(driver, lambda tree: tree.make_directory(f"{top}/b", mode))
        self.same(driver, lambda tree: tree.make_file(f"{top}/c", mode))
        for path in (f"{top}/b", f"{top}/c"):
            for wanted in (1, 2, 4):
                self.same(driver, methodcaller("access", path, wanted), uid=USER)
        self.compare(CLIENT)
