import errno

import pytest
from threefs_fuse.fuse_filesystem import FuseFileSystem
from threefs_fuse.requests import Caller

NOBODY = Caller(1, 1, 1)


def test_what_is_lacking_is_not_asked_for_again() -> None:
    with pytest.raises(OSError) as caught:
        FuseFileSystem().lookup(1, NOBODY, b"a")
    assert caught.value.errno == errno.ENOSYS == FuseFileSystem().error_number(caught.value)
    assert FuseFileSystem().error_number(ValueError()) == errno.EIO
    assert FuseFileSystem().opendir(1, NOBODY, 0, False) is not None
