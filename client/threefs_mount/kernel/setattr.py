"""Attributes that the kernel wants to be set, as the meta service is asked for them."""

from threefs_fuse.requests import Setting

from threefs.wire import meta_pb2 as pb

_PERMISSIONS = 0o7777
_NOTHING = Setting()


def request(place: pb.Place, setting: Setting) -> pb.SetAttrRequest | None:
    """None if there is nothing else to be set than a length.

    Nothing at all is what chown(2) without a new owner asks for, and the kernel before fallocate(2) of a file with
    set-user-id: both take that away.
    """
    asked = pb.SetAttrRequest(
        place=place,
        mode=None if setting.mode is None else setting.mode & _PERMISSIONS,
        uid=setting.uid,
        gid=setting.gid,
        atime_ns=setting.atime_ns,
        mtime_ns=setting.mtime_ns,
        atime_now=setting.atime_now,
        mtime_now=setting.mtime_now,
        drop_privileges=setting == _NOTHING,
    )
    return asked if len(asked.ListFields()) > 1 else None
