"""Tokenizers: bytes, a file of Hugging Face's `tokenizers`, or any function of Python."""

import hashlib
import importlib
import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from multiprocessing.reduction import ForkingPickler
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from threefs.env.random import RANDOM
from threefs.errors import InvalidArgument, NotFound, NotSupported

BYTES = "bytes"
_TOKEN_BYTES = 16


@runtime_checkable
class Tokenizer(Protocol):
    """Travels to worker processes. Equal documents must become equal tokens in each of them."""

    @property
    def name(self) -> str:
        """It and the input decide whether a result of an earlier run is used; and a text `state`, if there is one."""

    @property
    def vocabulary(self) -> int:
        """Ids are below it; 0: not known."""

    def encode(self, document: bytes) -> NDArray[Any]: ...


class ByteTokenizer:
    """A token is a byte."""

    name = BYTES
    vocabulary = 256

    def encode(self, document: bytes) -> NDArray[Any]:
        return np.frombuffer(document, np.uint8)


class CallableTokenizer:
    """A function from text (str) to the ids of its tokens."""

    def __init__(self, function: Callable[[str], Sequence[int]], name: str, vocabulary: int = 0) -> None:
        self.name = name
        self.vocabulary = vocabulary
        self._function = function

    @property
    def state(self) -> str:
        """Of the function: equal for functions that are pickled alike. Methods of two objects, or partial calls with
        other arguments, have one name. A function that cannot be pickled is like no other one."""
        try:
            content = bytes(ForkingPickler.dumps(self._function))  # as it travels to workers
        except Exception:  # whatever it is that objects raise
            content = RANDOM.token(_TOKEN_BYTES)
        return hashlib.sha256(content).hexdigest()

    def encode(self, document: bytes) -> NDArray[Any]:
        return np.asarray(self._function(document.decode()))


class FileTokenizer:
    """A file `tokenizer.json` of Hugging Face's `tokenizers`. Workers read it where this process has read it."""

    def __init__(self, path: str) -> None:
        """Raises NotFound, InvalidArgument, NotSupported."""
        self._path = os.path.abspath(path)
        self.name = _name_of(_content(self._path))
        self.vocabulary = int(_load(self._path, self.name).get_vocab_size())

    def encode(self, document: bytes) -> NDArray[Any]:
        encoded = _load(self._path, self.name).encode(document.decode(), add_special_tokens=False)
        return np.asarray(encoded.ids)


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise NotFound(f"there is no tokenizer file {path!r} on this machine") from None


def _name_of(content: bytes) -> str:
    return f"tokenizers:{hashlib.sha256(content).hexdigest()}"


@lru_cache(maxsize=4)
def _load(path: str, name: str) -> Any:
    """One of each file in a process. `name` has the digest of the content."""
    content = _content(path)
    if _name_of(content) != name:
        raise InvalidArgument(f"{path} has changed since the work began; start again with the file as it is to be")
    try:
        import tokenizers
    except ImportError:
        raise NotSupported("tokenizer files need the package tokenizers: pip install 'threefs[tokenizers]'") from None
    try:
        return tokenizers.Tokenizer.from_buffer(content)
    except Exception as error:  # it has no class of its own
        raise InvalidArgument(f"{path} is not a file of the package tokenizers: {error}") from None


def named(name: str) -> Tokenizer:
    """`bytes`, a file ending in .json, or `module:function`. Raises InvalidArgument, NotFound, NotSupported."""
    if name == BYTES:
        return ByteTokenizer()
    if name.endswith(".json"):
        return FileTokenizer(name)
    module, separator, function = name.partition(":")
    if not separator:
        raise InvalidArgument(
            f"{name!r} is no tokenizer: give {BYTES!r}, a file tokenizer.json, or a function as module:function"
        )
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise InvalidArgument(f"the tokenizer {name!r} cannot be imported: {error}") from None
    return of(found)


def of(tokenizer: Tokenizer | Callable[[str], Sequence[int]]) -> Tokenizer:
    """A function becomes a tokenizer whose name is that of the function."""
    if isinstance(tokenizer, Tokenizer):
        return tokenizer
    name = f"{tokenizer.__module__}:{getattr(tokenizer, '__qualname__', type(tokenizer).__qualname__)}"
    return CallableTokenizer(tokenizer, name)
