"""Opens what a look at a local tree has found, and nothing that has been put in its place since.

Whoever may write to a directory that another user copies could exchange a file for a symbolic link to one of that
user's, between the look and the copy.
"""

import os
import stat

from threefs.errors import NotSupported

_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_file(top: str, path: str) -> int:
    """The file `path`, of which `top` is a beginning that the user has named: below it no link is followed.

    Raises OSError, NotSupported for what is no file any more.
    """
    assert path.startswith(top), "the tree lies below its top"
    parent, _, name = path.rpartition("/") if path == top else (top, "", path[len(top) :])
    *parts, name = [part for part in name.split("/") if part]
    directory = os.open(parent or ("/" if path.startswith("/") else "."), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            below = os.open(part, _DIRECTORY_FLAGS, dir_fd=directory)
            os.close(directory)
            directory = below
        file = os.open(name, _FILE_FLAGS, dir_fd=directory)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    finally:
        os.close(directory)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise NotSupported(f"{path} is no file any more")
    return file
