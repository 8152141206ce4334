"""The documents that begin in a piece of a file: lines, whole files, a field of JSON lines, a column of Parquet."""

import json
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from threefs.errors import Corrupt, FileTooLarge, InvalidArgument, NotSupported, ThreefsError
from threefs_data.filesystem_protocol import TreeFileSystem
from threefs_data.prepare.sources import JSONL, PARQUET, TEXT, Source, check_unchanged, open_source
from threefs_data.prepare.splits import Piece

LINES, FILES = "lines", "files"
#: A column of a row group is decoded in one piece by some encodings. Values that stand in a dictionary once, and are
#: named by many rows, take no more either.
MAX_COLUMN_BYTES = 2 << 30

_SKIP_BYTES = 1 << 20
_ROWS_AT_ONCE = 256
_FIELDS_SHOWN = 5  # of an object that lacks the one asked for


@dataclass(frozen=True, slots=True)
class Document:
    data: bytes
    source: Source
    offset: int  # of its first byte; in Parquet, the number of its row


@dataclass(frozen=True, slots=True)
class DocumentReader:
    """How documents are found in files."""

    documents: str = LINES  # of text files
    field: str = "text"  # of JSON lines and Parquet
    max_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        if self.documents not in (LINES, FILES):
            raise InvalidArgument(f"documents are {LINES!r} or {FILES!r}, not {self.documents!r}")
        if self.max_bytes < 1:
            raise InvalidArgument(f"documents of at most {self.max_bytes} bytes are not possible; give 1 or more")

    def is_whole(self, source: Source) -> bool:
        """Whether the file is one document."""
        return source.kind == TEXT and self.documents == FILES

    def read(self, fs: TreeFileSystem, piece: Piece) -> Generator[Document, None, None]:
        """Those that begin in the piece. Raises Corrupt, FileTooLarge, which name file and line."""
        source = piece.source
        with open_source(fs, source) as file:
            if source.kind == PARQUET:
                yield from self._rows(file, piece)
            elif self.is_whole(source):
                yield self._whole(file, source)
            else:
                for line in self._lines(file, piece):
                    yield self._of_json(fs, line) if source.kind == JSONL else line
        check_unchanged(fs, source)

    def _whole(self, file: BinaryIO, source: Source) -> Document:
        if source.length > self.max_bytes:
            raise self._too_large(source.path)
        return Document(file.read(source.length), source, 0)

    def _lines(self, file: BinaryIO, piece: Piece) -> Iterator[Document]:
        """Without their ends; empty ones are left out."""
        position = piece.start
        if position:  # a line that begins before belongs to the piece before
            position -= 1
            file.seek(position)
            position += _skip_line(file)
        while position < piece.end:
            line = file.readline(self.max_bytes + 2)
            if not line:
                return
            data = line.removesuffix(b"\n").removesuffix(b"\r")
            if len(data) > self.max_bytes:
                raise self._too_large(_line_name(file, piece.source, position))
            if data:
                yield Document(data, piece.source, position)
            position += len(line)

    def _of_json(self, fs: TreeFileSystem, line: Document) -> Document:
        try:
            found = json.loads(line.data.decode())  # it looks for encodings in bytes
        except (ValueError, RecursionError) as error:
            raise Corrupt(f"{self.place(fs, line)} is not JSON: {error}") from None
        if not isinstance(found, dict) or self.field not in found:
            fields = ", ".join(map(repr, list(found)[:_FIELDS_SHOWN])) if isinstance(found, dict) else ""
            others = f"; it has {fields}: choose one by --field" if fields else ""
            raise Corrupt(f"{self.place(fs, line)} is not an object with the field {self.field!r}{others}")
        text = found[self.field]
        if not isinstance(text, str):
            raise Corrupt(f"{self.place(fs, line)}: the field {self.field!r} is not a text")
        try:
            return Document(text.encode(), line.source, line.offset)
        except UnicodeEncodeError as error:
            raise Corrupt(f"{self.place(fs, line)}: the field {self.field!r} is not Unicode: {error}") from None

    def _rows(self, file: BinaryIO, piece: Piece) -> Iterator[Document]:
        parquet, failure = _parquet_library()
        source = piece.source
        row = 0
        try:
            table = parquet.ParquetFile(file, pre_buffer=False, buffer_size=_SKIP_BYTES)
            column = self._column_number(table.schema, source)
            for group in range(table.num_row_groups):
                found = table.metadata.row_group(group)
                if piece.start <= _group_start(found, source) < piece.end:
                    yield from self._rows_of_group(table, group, column, source, row)
                row += found.num_rows
        except ThreefsError:
            raise
        except (failure, OSError, ValueError) as error:
            raise Corrupt(f"{source.path} cannot be read as Parquet: {error}") from None

    def _column_number(self, schema: Any, source: Source) -> int:
        for number in range(len(schema)):
            if schema.column(number).path == self.field:
                if schema.column(number).physical_type != "BYTE_ARRAY":
                    break
                return number
        raise InvalidArgument(f"{source.path} has no column {self.field!r} of texts; it has {', '.join(schema.names)}")

    def _rows_of_group(self, table: Any, group: int, column: int, source: Source, row: int) -> Iterator[Document]:
        size = table.metadata.row_group(group).column(column).total_uncompressed_size
        if size > MAX_COLUMN_BYTES:
            raise InvalidArgument(
                f"{source.path}: the column has {size} bytes in row group {group}, more than {MAX_COLUMN_BYTES}; "
                "write it with smaller row groups"
            )
        rows = max(1, min(_ROWS_AT_ONCE, MAX_COLUMN_BYTES // max(1, size)))  # each may be as large as the column
        for batch in table.iter_batches(rows, row_groups=[group], columns=[self.field]):
            for value in batch.column(0):
                text = value.as_py()
                if text is None:
                    raise Corrupt(f"{source.path}, row {row + 1}: the column {self.field!r} is empty")
                data = text.encode() if isinstance(text, str) else bytes(text)
                if len(data) > self.max_bytes:
                    raise self._too_large(f"{source.path}, row {row + 1}")
                yield Document(data, source, row)
                row += 1

    def place(self, fs: TreeFileSystem, document: Document) -> str:
        """For an error: the file, and the line or row."""
        source = document.source
        if source.kind == PARQUET:
            return f"{source.path}, row {document.offset + 1}"
        if self.is_whole(source):
            return source.path
        with open_source(fs, source) as file:
            return _line_name(file, source, document.offset)

    def _too_large(self, where: str) -> FileTooLarge:
        return FileTooLarge(f"{where}: the document has more than {self.max_bytes} bytes; allow larger ones")


def _skip_line(file: BinaryIO) -> int:
    """Read to the end of a line; the number of bytes."""
    length = 0
    while part := file.readline(_SKIP_BYTES):
        length += len(part)
        if part.endswith(b"\n"):
            break
    return length


def _line_name(file: BinaryIO, source: Source, offset: int) -> str:
    """Lines are counted when somebody asks: a piece begins anywhere in a file."""
    file.seek(0)
    number, position = 1, 0
    while position < offset and (part := file.read(min(_SKIP_BYTES, offset - position))):
        number += part.count(b"\n")
        position += len(part)
    return f"{source.path}, line {number}"


def _group_start(group: Any, source: Source) -> int:
    """The offset of a row group, which says which piece it belongs to."""
    if not group.num_columns:
        raise Corrupt(f"{source.path} has a row group without columns")
    column = group.column(0)
    start = int(column.dictionary_page_offset or column.data_page_offset)
    if not 0 <= start < source.length:
        raise Corrupt(f"{source.path} has {source.length} bytes and a row group at {start}")
    return start


def _parquet_library() -> tuple[Any, type[Exception]]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise NotSupported("Parquet files need the package pyarrow: pip install 'threefs[parquet]'") from None
    return parquet, pyarrow.ArrowException
