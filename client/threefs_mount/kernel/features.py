"""What the kernel is asked for at the mount."""

from threefs_fuse.protocol import Feature

#: Not the kernel's write-back cache: it would believe its own lengths, and never see those of other clients.
FEATURES = (
    Feature.ASYNC_READ
    | Feature.POSIX_LOCKS
    | Feature.ATOMIC_O_TRUNC
    | Feature.BIG_WRITES
    | Feature.DONT_MASK
    | Feature.FLOCK_LOCKS
    | Feature.AUTO_INVAL_DATA
    | Feature.DO_READDIRPLUS
    | Feature.READDIRPLUS_AUTO
    | Feature.ASYNC_DIO
    | Feature.PARALLEL_DIROPS
    | Feature.POSIX_ACL
    | Feature.CACHE_SYMLINKS
    | Feature.HANDLE_KILLPRIV_V2
    | Feature.SETXATTR_EXT
    | Feature.CREATE_SUPP_GROUP
    | Feature.DIRECT_IO_ALLOW_MMAP
)
