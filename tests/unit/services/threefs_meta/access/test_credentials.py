"""Who acts."""

import pytest
from threefs_meta.access.credentials import MAX_GROUPS, TRUSTED, Credentials, actor_of, maker_of

from threefs.errors import InvalidArgument
from threefs.wire import meta_pb2 as pb


def test_a_request_without_a_user_is_trusted_and_names_the_owner_of_new_files() -> None:
    assert actor_of(pb.StatRequest()) == TRUSTED
    maker = maker_of(pb.MkdirRequest(uid=3, gid=4))
    assert (maker.uid, maker.gid, maker.is_super) == (3, 4, True)


def test_a_caller_is_only_itself() -> None:
    caller = pb.Caller(uid=3, gid=4, groups=[5, 6])
    for actor in (actor_of(pb.StatRequest(caller=caller)), maker_of(pb.MkdirRequest(uid=0, gid=0, caller=caller))):
        assert actor == Credentials(3, 4, frozenset({5, 6}), False)
        assert [actor.in_group(gid) for gid in (3, 4, 5, 6, 7)] == [False, True, True, True, False]
        assert actor.owns(pb.Inode(uid=3)) and not actor.owns(pb.Inode(uid=4))
    assert actor_of(pb.StatRequest(caller=pb.Caller(uid=0, gid=9))).is_super


def test_a_caller_is_in_so_many_groups() -> None:
    assert len(actor_of(pb.StatRequest(caller=pb.Caller(groups=range(MAX_GROUPS)))).groups) == MAX_GROUPS
    with pytest.raises(InvalidArgument):
        actor_of(pb.StatRequest(caller=pb.Caller(groups=range(MAX_GROUPS + 1))))
