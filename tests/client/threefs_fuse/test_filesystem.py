import errno

import pytest
from threefs_fuse.filesystem import FileSystem
from threefs_fuse.requests import Caller

NOBODY = Caller(1, 1, 1)


def test_what_is_lacking_is_not_asked_for_again() -> None:
    with pytest.raises(OSError) as caught:
        FileSystem().lookup(1, NOBODY, b"a")
    assert caught.value.errno == errno.ENOSYS == FileSystem().error_number(caught.value)
    assert FileSystem().error_number(ValueError()) == errno.EIO
    assert FileSystem().opendir(1, NOBODY, 0, False) is not None
