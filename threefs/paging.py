"""Lists that a service sends in pages: each call names the place behind which the next page begins."""

from typing import Protocol, Self, TypeVar

from threefs.errors import ProtocolError


class _Ordered(Protocol):
    def __le__(self, other: Self, /) -> bool: ...


Place = TypeVar("Place", bound=_Ordered)


def next_place(listed: str, behind: Place | None, end: Place | None) -> Place:
    """Where the next page begins: at the end of the page that was asked for `behind` a place (None: for the first).

    Raises ProtocolError if the page does not end farther on. Its service says that there is more, and would be asked
    for the same page for ever.
    """
    if end is None or (behind is not None and end <= behind):
        raise ProtocolError(
            f"the list of {listed} does not go on: the page behind {behind!r} ends at {end!r}, and its service says "
            "that there is more. Restart that service; if it helps nothing, report this error with its log"
        )
    return end
