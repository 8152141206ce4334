"""Numbers of the kernel's protocol, as in linux/fuse.h: versions, operations, flags."""

from enum import IntEnum, IntFlag

MAJOR = 7
#: The oldest minor version that the kernel may have, and the newest whose additions are known here.
OLDEST_MINOR = 31
NEWEST_MINOR = 39
ROOT = 1  # the inode number of the root

#: Payload of the largest request. A buffer holds it and the longest head.
MAX_PAYLOAD_BYTES = 1 << 20
HEAD_BYTES = 4096
MAX_PAGES = 256
NAME_BYTES = 1024  # the longest name that the kernel passes on


class Op(IntEnum):
    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    READLINK = 5
    SYMLINK = 6
    MKNOD = 8
    MKDIR = 9
    UNLINK = 10
    RMDIR = 11
    RENAME = 12
    LINK = 13
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    SETXATTR = 21
    GETXATTR = 22
    LISTXATTR = 23
    REMOVEXATTR = 24
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    FSYNCDIR = 30
    GETLK = 31
    SETLK = 32
    SETLKW = 33
    ACCESS = 34
    CREATE = 35
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42
    FALLOCATE = 43
    READDIRPLUS = 44
    RENAME2 = 45
    LSEEK = 46
    COPY_FILE_RANGE = 47
    SYNCFS = 50
    TMPFILE = 51
    STATX = 52


class Feature(IntFlag):
    """Features on which the kernel and the file system agree in INIT."""

    ASYNC_READ = 1 << 0
    POSIX_LOCKS = 1 << 1
    ATOMIC_O_TRUNC = 1 << 3
    BIG_WRITES = 1 << 5
    DONT_MASK = 1 << 6
    FLOCK_LOCKS = 1 << 10
    AUTO_INVAL_DATA = 1 << 12
    DO_READDIRPLUS = 1 << 13
    READDIRPLUS_AUTO = 1 << 14
    ASYNC_DIO = 1 << 15
    PARALLEL_DIROPS = 1 << 18
    POSIX_ACL = 1 << 20
    MAX_PAGES = 1 << 22
    CACHE_SYMLINKS = 1 << 23
    HANDLE_KILLPRIV_V2 = 1 << 28
    SETXATTR_EXT = 1 << 29
    INIT_EXT = 1 << 30
    CREATE_SUPP_GROUP = 1 << 34
    DIRECT_IO_ALLOW_MMAP = 1 << 36


class Changed(IntFlag):
    """Which fields of SETATTR are set."""

    MODE = 1 << 0
    UID = 1 << 1
    GID = 1 << 2
    SIZE = 1 << 3
    ATIME = 1 << 4
    MTIME = 1 << 5
    HANDLE = 1 << 6
    ATIME_NOW = 1 << 7
    MTIME_NOW = 1 << 8
    LOCK_OWNER = 1 << 9
    CTIME = 1 << 10
    KILL_SUIDGID = 1 << 11


class OpenFlag(IntFlag):
    """How the kernel treats an open file."""

    DIRECT_IO = 1 << 0
    KEEP_CACHE = 1 << 1
    CACHE_DIR = 1 << 3
    PARALLEL_DIRECT_WRITES = 1 << 6


GETATTR_HANDLE = 1 << 0
OPEN_KILL_SUIDGID = 1 << 0
RELEASE_FLOCK_UNLOCK = 1 << 1
LOCK_IS_FLOCK = 1 << 0
WRITE_FROM_CACHE = 1 << 0
WRITE_KILL_SUIDGID = 1 << 2
SETXATTR_KILL_SGID = 1 << 0
FSYNC_ONLY_DATA = 1 << 0
EXTENSION_GROUPS = 32

NOTIFY_INVAL_INODE = 2
