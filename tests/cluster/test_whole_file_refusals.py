"""`write_file` and `write_many` meet the errors that `open` meets, on a cluster of real processes."""

import uuid
from collections.abc import Callable

from threefs_client import FileSystem

from threefs.errors import ThreefsError

ENTRIES = (
    "closed/new",
    "closed/directory",
    "closed/mine",
    "closed/theirs",
    "closed/for-all",
    "closed/none/new",
    "closed/none/../new",
    "closed/mine/new",
    "closed/mine/",
    "closed/new/",
    "closed/loop",
    "closed/to-nothing",
    "closed/to-open",
    "closed/to-mine",
    "closed/to-directory",
    "closed/" + "x" * 256,
    "closed/.",
    "secret/mine",
    "secret/new",
    "secret/none/new",
    "sticky/theirs",
    "sticky/for-all",
    "sticky/new",
    "open/new",
    "open/none/new",
)


def tree_of_refusals(fs: FileSystem, top: str) -> None:
    """For user 1000, in whose way nearly everything is."""
    for name in ("closed/directory", "secret", "sticky", "open"):
        fs.mkdir(f"{top}/{name}", parents=True)
    for name, mode, uid in (("mine", 0o600, 1000), ("theirs", 0o644, 0), ("for-all", 0o666, 0)):
        for directory in ("closed", "secret", "sticky"):
            fs.write_file(f"{top}/{directory}/{name}", b"before")
            fs.chown(f"{top}/{directory}/{name}", uid, uid)
            fs.chmod(f"{top}/{directory}/{name}", mode)
    for name, target in (
        ("loop", "loop"),
        ("to-nothing", "none"),
        ("to-open", "../open/linked"),
        ("to-mine", "mine"),
        ("to-directory", "directory"),
    ):
        fs.symlink(target, f"{top}/closed/{name}")
    for name, mode in (("closed", 0o755), ("secret", 0o700), ("sticky", 0o1777), ("open", 0o777)):
        fs.chmod(f"{top}/{name}", mode)


def test_whole_files_are_refused_as_open_refuses_them(fs: FileSystem) -> None:
    def opened(user: FileSystem, path: str) -> None:
        with user.open(path, "wb") as file:
            file.write(b"content")

    def outcome(call: Callable[[FileSystem, str], None], path: str) -> str:
        try:
            call(fs.acting_as(1000, 1000), path)
        except ThreefsError as error:
            return type(error).__name__
        return fs.read_file(path).decode()

    place = f"/refusals/{uuid.uuid4().hex}"
    for top in "abc":
        tree_of_refusals(fs, f"{place}/{top}")
    expected = [outcome(opened, f"{place}/a/{name}") for name in ENTRIES]
    assert {"AccessDenied", "IsADirectory", "NotFound", "NotADirectory", "TooManySymlinks", "NameTooLong"} <= {
        *expected
    }
    assert expected.count("content") > 4
    alone = [outcome(lambda user, path: user.write_file(path, b"content"), f"{place}/b/{name}") for name in ENTRIES]
    assert dict(zip(ENTRIES, alone, strict=True)) == dict(zip(ENTRIES, expected, strict=True))
    errors = fs.acting_as(1000, 1000).write_many([(f"{place}/c/{name}", b"content") for name in ENTRIES])
    together = ["content" if error is None else type(error).__name__ for error in errors]
    assert dict(zip(ENTRIES, together, strict=True)) == dict(zip(ENTRIES, expected, strict=True))
    assert outcome(lambda user, path: user.write_file(path, b"content"), "/") == outcome(opened, "/")
