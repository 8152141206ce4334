"""Opens files that a scan of a local tree has found, without following symbolic links below its top.

Between the scan and the copy, another user who may write to the directory could replace a file by a symbolic link to a
file that only the copying user may read.
"""

import os
import stat

from threefs.errors import NotSupported

_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_file(top: str, path: str) -> int:
    """Open the file `path`. No link is followed below `top`, the beginning of `path` that the user has named.

    Raises OSError, and NotSupported if `path` is not a file any more.
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
        raise NotSupported(f"{path} is not a file any more: it was replaced during the copy")
    return file
