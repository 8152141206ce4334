"""The format of what a process keeps, in its data directory or in a store that several processes share. An older
version of threefs must not take what it cannot read for damage, and repair it: so it refuses a directory or a store in
which a newer version has worked.
"""

from pathlib import Path

import structlog

from threefs import __version__
from threefs.cluster.incarnations import write_durably
from threefs.errors import FULL_DISK, StrangeStore
from threefs.kv.engine_api import Transaction

FILE_NAME = "format"
#: Raise it with each change of stored data that the version before could not read.
DATA_FORMAT = 2
_LOG = structlog.get_logger()


def claim(directory: Path) -> None:
    """Note that this version works in the directory. Raises StrangeStore if a newer format is stored there, OSError."""
    file = directory / FILE_NAME
    stored = _stored(file)
    _check(stored, str(directory))
    if stored < DATA_FORMAT:
        try:
            write_durably(file, f"{DATA_FORMAT}\n".encode("ascii"))
        except OSError as error:
            if error.errno not in FULL_DISK:
                raise
            _LOG.warning("the disk is full: the format of its data is noted at a later start", file=str(file))


async def claim_store(tx: Transaction, key: bytes, name: str) -> None:
    """The same for a store, in the record `key`: digits, which every version can read. Raises StrangeStore."""
    if await check_store(tx, key, name) < DATA_FORMAT:
        tx.set(key, b"%d" % DATA_FORMAT)


async def check_store(tx: Transaction, key: bytes, name: str) -> int:
    """The format that a store notes, 0 if nobody has noted one. Raises StrangeStore if it is a newer one."""
    value = await tx.get(key)
    stored = int(value) if value is not None and value.isdigit() else 0
    _check(stored, name)
    return stored


def _check(stored: int, name: str) -> None:
    if stored > DATA_FORMAT:
        raise StrangeStore(
            f"{name} has data of a newer version of threefs, in format {stored}; this version, {__version__}, "
            f"knows formats up to {DATA_FORMAT}. Nothing was changed. Start the newer version again (docs/upgrade.md)"
        )


def _stored(file: Path) -> int:
    """0: nobody has noted it."""
    try:
        return int(file.read_bytes())
    except FileNotFoundError:
        return 0
    except ValueError:
        _LOG.warning("the file of the format holds no number, and is written anew", file=str(file))
        return 0
