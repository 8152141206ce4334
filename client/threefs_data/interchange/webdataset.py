"""WebDataset: tar files. The files of a sample follow one another, and have the same name up to the first dot."""

import os
import re
import tarfile
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from threefs.checksums import Buffer
from threefs.errors import Corrupt, FileTooLarge, InvalidArgument, NotSupported
from threefs_data import format
from threefs_data.interchange.exchange_directory import Directory

#: Names and sizes that do not fit a header are in headers of their own, which a file may make as large as it likes.
MAX_EXTENDED_BYTES = 64 << 10

_FIELD = re.compile(r"[\w-][\w.-]{0,40}", re.ASCII)
_BLOCK = tarfile.BLOCKSIZE
_SKIP_BYTES = 1 << 20


def shard_name(number: int) -> str:
    return f"shard-{number:06d}.tar"


def write(directory: Directory, samples: Iterable[Buffer], field: str, shard_bytes: int) -> int:
    """Each sample becomes one file with the extension `field`; the number of samples."""
    if not _FIELD.fullmatch(field):
        raise InvalidArgument(f"{field!r} is not possible as an extension; give letters and digits")
    count, shard, size = 0, 0, 0
    file: BinaryIO | None = None
    try:
        for sample in samples:
            if file is None:
                file, size = directory.create(shard_name(shard)), 0
            size += _write_member(file, f"{count:012d}.{field}", sample)
            count += 1
            if size >= shard_bytes:
                _end(file)
                file, shard = None, shard + 1
        if file is not None:
            _end(file)
    finally:
        if file is not None:
            file.close()
    return count


def _write_member(file: BinaryIO, name: str, content: Buffer) -> int:
    member = tarfile.TarInfo(name)
    member.size = memoryview(content).nbytes
    header = member.tobuf(tarfile.USTAR_FORMAT)
    file.write(header)
    file.write(content)
    file.write(bytes(-member.size % _BLOCK))
    return len(header) + member.size + -member.size % _BLOCK


def _end(file: BinaryIO) -> None:
    file.write(bytes(2 * _BLOCK))
    file.close()


def read(directory: Directory, field: str) -> Iterator[bytes]:
    """The file `field` of each sample, tar file by tar file. Raises Corrupt for a sample without one, NotSupported."""
    names = [name for name in directory.names() if name.endswith(".tar")]
    if not names:
        raise Corrupt(f"{directory.place('')} has no tar files")
    for name in names:
        where = directory.place(name)
        with directory.open(name) as file:
            yield from _fields(file, field, where)


def _fields(file: BinaryIO, field: str, where: str) -> Iterator[bytes]:
    key: str | None = None
    found = False
    for name, size in _members(file, where):
        base, _, extension = name.rpartition("/")[2].partition(".")
        if not base or not extension:  # README, or what macOS puts beside each file: of no sample, as for others
            continue
        sample = f"{name.rpartition('/')[0]}/{base}"
        if sample != key:
            if key is not None and not found:
                raise Corrupt(f"{where}: the sample {key[1:] if key.startswith('/') else key} has no file .{field}")
            key, found = sample, False
        if extension != field:
            continue
        if found:
            raise Corrupt(f"{where} has {name} twice")
        if size > format.MAX_SAMPLE_BYTES:
            raise FileTooLarge(f"{where}: {name} has {size} bytes; a sample has at most {format.MAX_SAMPLE_BYTES}")
        found = True
        yield file.read(size)
    if key is not None and not found:
        raise Corrupt(f"{where}: the sample {key[1:] if key.startswith('/') else key} has no file .{field}")


def _members(file: BinaryIO, where: str) -> Iterator[tuple[str, int]]:
    """(name, size) of the regular files. The caller may read the content before it asks for the next one."""
    position, end = 0, file.seek(0, os.SEEK_END)
    long_name = ""
    extended: dict[str, str] = {}
    while True:
        file.seek(position)
        header = file.read(_BLOCK)
        if not header or header.count(0) == len(header):
            return
        try:
            member = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            raise Corrupt(f"{where}: what is at byte {position} is no header of a tar file: {error}") from None
        is_extended = member.type in (tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE)
        size = member.size if is_extended else _size(extended, member.size, where)
        position += _BLOCK + size + -size % _BLOCK
        if size < 0 or position > end:
            raise Corrupt(f"{where} ends within {member.name[:100]!r}, which has {size} bytes")
        if member.type == tarfile.GNUTYPE_LONGNAME:
            long_name = _read_extended(file, member.size, where).rstrip(b"\0").decode("utf-8", "surrogateescape")
        elif member.type == tarfile.XHDTYPE:
            extended = _decode_pax(_read_extended(file, member.size, where), where)
        elif member.type == tarfile.GNUTYPE_SPARSE or any(key.startswith("GNU.sparse.") for key in extended):
            raise NotSupported(f"{where}: {member.name[:100]!r} is stored with holes; make the tar file without -S")
        elif member.isreg():
            name = extended.get("path") or long_name or member.name
            yield name, size
        if not is_extended:
            long_name, extended = "", {}


def _size(extended: dict[str, str], size: int, where: str) -> int:
    text = extended.get("size", "")
    if text and not (text.isascii() and text.isdigit() and len(text) < 20):
        raise Corrupt(f"{where} has a file of {text[:40]!r} bytes")
    return int(text) if text else size


def _read_extended(file: BinaryIO, size: int, where: str) -> bytes:
    if size > MAX_EXTENDED_BYTES:
        raise Corrupt(f"{where} has an extended header of {size} bytes, more than {MAX_EXTENDED_BYTES}")
    return file.read(size)


def _decode_pax(content: bytes, where: str) -> dict[str, str]:
    """Records "LENGTH NAME=VALUE\\n", where LENGTH counts all of the record."""
    found = {}
    while content:
        length, _, _ = content[:20].partition(b" ")
        if not length.isdigit() or not len(length) < int(length) <= len(content):
            raise Corrupt(f"{where} has an extended header that cannot be read")
        record, content = content[len(length) + 1 : int(length) - 1], content[int(length) :]
        name, _, value = record.partition(b"=")
        found[name.decode("utf-8", "surrogateescape")] = value.decode("utf-8", "surrogateescape")
    return found
