"""`mount.threefs`: what mount(8) runs for lines of /etc/fstab with the type `threefs`.

    threefs://manager:7000  /mnt/data  threefs  _netdev,nofail,ro  0 0

Beside the flags of mount(8): cache=SECONDS, timeout=SECONDS, private, supervise, key_file=PATH, metrics_port=PORT.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from threefs_client.keyring import TOKEN_VARIABLE
from threefs_mount.options import KERNEL_OPTIONS

from threefs.errors import InvalidArgument

_USAGE = "usage: mount.threefs ADDRESS MOUNTPOINT [-o OPTION,...]"
#: For mount(8), systemd and people; they say nothing about the file system.
_IGNORED_OPTIONS = {"defaults", "auto", "noauto", "nofail", "user", "nouser", "users", "owner", "group", "_netdev"}
_IGNORED_OPTIONS |= {
    "relatime",
    "norelatime",
    "strictatime",
    "lazytime",
    "nodiratime",
    "diratime",
    "atime",
    "mand",
    "nomand",
}
_IGNORED_OPTIONS |= {"allow_other", "default_permissions"}
_VALUE_OPTIONS = {
    "cache": "--cache",
    "timeout": "--timeout",
    "key_file": "--key-file",
    "metrics_port": "--metrics-port",
}


def main() -> None:
    try:
        words = arguments(sys.argv[1:])
    except InvalidArgument as error:
        sys.exit(f"mount.threefs: {error}")
    except OSError as error:
        sys.exit(f"mount.threefs: {error.filename}: {error.strerror}")
    if words is None:
        return
    if words[0] == "mount":
        os.execvp(words[0], words)
    from threefs_cli.main import main as threefs

    with redirect_stdout(StringIO()):  # mount(8) says nothing of what went well
        threefs(words[1:], prog_name="threefs")


def arguments(words: Sequence[str]) -> list[str] | None:
    """A command, `threefs` or `mount`, for those of mount(8); None if nothing is to be done. Raises InvalidArgument.

    To mount again with other flags is the work of the kernel alone: mount(8) does that without a helper. It gets source
    and place: with the place alone it would add the flags of before to these, which are all that are wanted.
    """
    places: list[str] = []
    chosen: list[str] = []
    fake = False
    rest = iter(words)
    for word in rest:
        if word in ("-o", "-t", "-N"):
            value = next(rest, "")
            chosen += value.split(",") if word == "-o" else []
        elif word.startswith("-"):
            fake = fake or "f" in word
        else:
            places.append(word)
    if len(places) != 2:
        raise InvalidArgument(_USAGE)
    if "remount" in chosen:
        flags = [option for option in chosen if option in KERNEL_OPTIONS]
        command = ["mount", "--internal-only", "-o", ",".join(["remount", *flags]), "--", *places]
    else:
        command = ["threefs", "mount", "--address", places[0], *_options(chosen), "--", places[1]]
    return None if fake else command


def _options(chosen: Sequence[str]) -> list[str]:
    words: list[str] = []
    flags: list[str] = []
    for option in filter(None, chosen):
        name, _, value = option.partition("=")
        if option in KERNEL_OPTIONS:
            flags.append(option)
        elif name in _VALUE_OPTIONS and value:
            words += [_VALUE_OPTIONS[name], value]
        elif name == "token_file" and value:
            os.environ[TOKEN_VARIABLE] = Path(value).read_text(encoding="utf-8").strip()
        elif option in ("private", "supervise"):
            words.append(f"--{option}")
        elif option not in _IGNORED_OPTIONS and not name.startswith(("x-", "X-", "comment")):
            raise InvalidArgument(f"unknown option {option!r}")
    return [*words, *(("-o", ",".join(flags)) if flags else ())]
