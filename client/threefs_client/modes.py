"""The modes of `open`."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from threefs.errors import InvalidArgument

#: The usual spellings of modes, by which a type checker knows the type of a file object. `parse` takes any order of
#: the letters.
BinaryMode: TypeAlias = Literal[
    "rb", "br", "wb", "bw", "xb", "bx", "ab", "ba",
    "rb+", "r+b", "+rb", "br+", "b+r", "wb+", "w+b", "+wb", "bw+", "b+w",
    "xb+", "x+b", "+xb", "bx+", "b+x", "ab+", "a+b", "+ab", "ba+", "b+a",
]  # fmt: skip
TextMode: TypeAlias = Literal[
    "r", "rt", "tr", "w", "wt", "tw", "x", "xt", "tx", "a", "at", "ta",
    "r+", "+r", "rt+", "r+t", "+rt", "tr+", "t+r", "w+", "+w", "wt+", "w+t", "+wt", "tw+", "t+w",
    "x+", "+x", "xt+", "x+t", "+xt", "tx+", "t+x", "a+", "+a", "at+", "a+t", "+at", "ta+", "t+a",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mode:
    readable: bool
    writable: bool
    append: bool  # each write goes to the end
    create: bool
    exclusive: bool  # fail if it exists
    truncate: bool
    text: bool

    @property
    def access(self) -> int:
        """The permissions that an open needs, as permission bits."""
        return 4 * self.readable + 2 * self.writable

    @property
    def display(self) -> str:
        """The `mode` attribute of a file object."""
        letter = "x" if self.exclusive else "a" if self.append else "w" if self.truncate else "r"
        return letter + "b" + ("+" if self.readable and self.writable else "")


def parse(mode: str) -> Mode:
    """Read a mode as the built-in `open` does: text unless "b" is given.

    Raises InvalidArgument.
    """
    if not isinstance(mode, str):
        raise InvalidArgument(f"a mode is a string, not {type(mode).__name__}")
    letters = set(mode)
    kinds = letters & set("rwxa")
    if len(kinds) != 1 or len(letters) != len(mode) or letters - set("rwxa+bt") or {"b", "t"} <= letters:
        raise InvalidArgument(f"mode {mode!r} is not one of r, w, x, a with at most one + and one of b, t")
    kind, plus = kinds.pop(), "+" in letters
    return Mode(
        readable=kind == "r" or plus,
        writable=kind != "r" or plus,
        append=kind == "a",
        create=kind != "r",
        exclusive=kind == "x",
        truncate=kind == "w",
        text="b" not in letters,
    )
