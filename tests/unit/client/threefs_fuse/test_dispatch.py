import fcntl
import inspect
import os

import pytest
from threefs_fuse import dispatch, replies
from threefs_fuse.fuse_filesystem import FuseFileSystem
from threefs_fuse.protocol import Feature, Op
from threefs_fuse.requests import Lock


def test_every_operation_has_a_method() -> None:
    for code, operation in dispatch.negotiated_operations(Feature.SETXATTR_EXT).items():
        assert inspect.isfunction(getattr(FuseFileSystem, operation.method)), Op(code)


def test_only_what_changes_nothing_may_stop() -> None:
    table = dispatch.negotiated_operations(Feature(0))
    assert table[Op.OPEN].cancellable((os.O_RDONLY, False))
    assert not table[Op.OPEN].cancellable((os.O_RDWR, False)) and not table[Op.OPEN].cancellable((os.O_TRUNC, False))
    assert table[Op.READ].cancellable(())
    for kind, may_stop in ((fcntl.F_WRLCK, True), (fcntl.F_UNLCK, False)):
        assert table[Op.SETLKW].cancellable((1, 2, Lock(0, 1, kind, 3), False)) == may_stop
    for code in (Op.WRITE, Op.CREATE, Op.RENAME2, Op.UNLINK, Op.SETATTR, Op.RELEASE, Op.FLUSH):
        assert not table[code].cancellable(())


def test_room_for_an_answer() -> None:
    assert dispatch.sized(0, (b"abc",)) == replies.size(3)
    assert dispatch.sized(3, (b"abc",)) == (b"abc",)
    with pytest.raises(OSError, match="range"):
        dispatch.sized(2, (b"abc",))


def test_the_older_form_of_attributes() -> None:
    assert (
        dispatch.negotiated_operations(Feature(0))[Op.SETXATTR].decode
        is not dispatch.negotiated_operations(Feature.SETXATTR_EXT)[Op.SETXATTR].decode
    )
