from threefs_client import paths
from threefs_fuse.requests import Setting
from threefs_mount.kernel.setattr import request

from threefs.wire import meta_pb2 as pb


def test_only_what_is_set_is_asked_for() -> None:
    place = paths.inode_place(5)
    assert request(place, Setting(mode=0o100644)) == pb.SetAttrRequest(place=place, mode=0o644)
    assert request(place, Setting(uid=0, size=3)) == pb.SetAttrRequest(place=place, uid=0)
    assert request(place, Setting(atime_now=True, mtime_ns=-7)) == pb.SetAttrRequest(
        place=place, atime_now=True, mtime_ns=-7
    )
    assert request(place, Setting(size=3, handle=1, kill_privileges=True)) is None


def test_who_sets_nothing_wants_privileges_to_go() -> None:
    place = paths.inode_place(5)
    assert request(place, Setting()) == pb.SetAttrRequest(place=place, drop_privileges=True)
