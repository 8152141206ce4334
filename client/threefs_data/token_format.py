"""The content of the samples of a tokenized dataset, as `tokens.json` in its directory says. Pure, except `read`."""

import json
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from threefs.checksums import Buffer
from threefs.errors import Corrupt, InvalidArgument, NotSupported
from threefs_data.filesystem_protocol import FileSystem

__all__ = ["DTYPES", "NAME", "VERSION", "TokenFormat", "read", "smallest_dtype"]

NAME = "tokens.json"
VERSION = 1
MAX_BYTES = 64 << 10
MAX_SEQUENCE_LENGTH = 1 << 26
#: Little-endian in files. The smallest one that holds all ids is taken.
DTYPES = ("uint8", "uint16", "uint32")


@dataclass(frozen=True, slots=True)
class TokenFormat:
    """A sample is one document, or with a `sequence_length` that number of tokens of all documents in a row. With
    `document_starts` a bit for each token follows: whether a document begins with it."""

    dtype: str
    sequence_length: int = 0
    document_starts: bool = False
    end_of_document: int | None = None
    tokenizer: str = ""

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise InvalidArgument(f"tokens of type {self.dtype!r} are not possible; give one of {', '.join(DTYPES)}")
        if not 0 <= self.sequence_length <= MAX_SEQUENCE_LENGTH:
            raise InvalidArgument(
                f"a sequence length of {self.sequence_length} is not possible; give 1 to {MAX_SEQUENCE_LENGTH}, "
                "or 0 for a sample per document"
            )
        if self.document_starts and not self.sequence_length:
            raise InvalidArgument("only sequences have document starts: give a sequence length too")
        if self.end_of_document is not None and not 0 <= self.end_of_document <= self.max_token:
            raise InvalidArgument(
                f"the end-of-document token {self.end_of_document} is not among 0 to {self.max_token} of {self.dtype}"
            )

    @property
    def token_bytes(self) -> int:
        return np.dtype(self.dtype).itemsize

    @property
    def max_token(self) -> int:
        return int(np.iinfo(self.dtype).max)

    @property
    def sample_bytes(self) -> int:
        """Of every sample; 0 if documents are samples."""
        starts = -(-self.sequence_length // 8) if self.document_starts else 0
        return self.sequence_length * self.token_bytes + starts

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        return np.dtype(self.dtype).newbyteorder("<")

    def tokens(self, sample: Buffer) -> NDArray[Any]:
        """The tokens of a sample. Raises Corrupt."""
        self._check(sample)
        return np.frombuffer(sample, self.numpy_dtype, self.sequence_length or -1)

    def starts(self, sample: Buffer) -> NDArray[np.bool_]:
        """For each token of a sample, whether a document begins with it. Raises InvalidArgument, Corrupt."""
        if not self.document_starts:
            raise InvalidArgument("these samples were made without document starts")
        self._check(sample)
        bits = np.frombuffer(sample, np.uint8, offset=self.sequence_length * self.token_bytes)
        return np.unpackbits(bits, count=self.sequence_length, bitorder="little").astype(np.bool_)

    def _check(self, sample: Buffer) -> None:
        """The samples are files of their own, which may be of another dataset."""
        size = memoryview(sample).nbytes
        if size != self.sample_bytes if self.sequence_length else size % self.token_bytes:
            what = f"{self.sequence_length} tokens" if self.sequence_length else "whole tokens"
            raise Corrupt(f"a sample of {size} bytes does not have {what} of {self.dtype}, as {NAME} says")

    def encode(self) -> bytes:
        return json.dumps({"version": VERSION, **asdict(self)}, indent=2).encode() + b"\n"

    @classmethod
    def decode(cls, content: bytes, where: str) -> Self:
        """Raises Corrupt, NotSupported."""
        if len(content) > MAX_BYTES:
            raise Corrupt(f"{where} has more than {MAX_BYTES} bytes")
        try:
            found = json.loads(content)
            version = found.pop("version")
            if version != VERSION:
                raise NotSupported(f"{where} has version {version}; this program reads version {VERSION}")
            return cls._checked(found)
        except NotSupported:
            raise
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise Corrupt(f"{where} does not describe tokens: {error}") from None

    @classmethod
    def _checked(cls, found: dict[str, Any]) -> Self:
        kinds = {"dtype": str, "sequence_length": int, "document_starts": bool, "tokenizer": str}
        for name, kind in kinds.items():
            if type(found[name]) is not kind:
                raise TypeError(f"{name} is not a {kind.__name__}")
        if found["end_of_document"] is not None and type(found["end_of_document"]) is not int:
            raise TypeError("end_of_document is not a number")
        return cls(**found)


def smallest_dtype(ids: int) -> str:
    """The type for token ids 0 to ids - 1."""
    for dtype in DTYPES:
        if ids - 1 <= np.iinfo(dtype).max:
            return dtype
    raise InvalidArgument(f"{ids} different tokens are more than {DTYPES[-1]} holds")


def read(fs: FileSystem, path: str) -> TokenFormat:
    """Of the dataset at `path`. Raises NotFound, Corrupt, NotSupported."""
    where = f"{path.rstrip('/')}/{NAME}"
    with fs.open(where, "rb") as file:
        return TokenFormat.decode(file.read(MAX_BYTES + 1), where)
