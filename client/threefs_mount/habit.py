"""Whether programs look at the entries of the directories that they list. No I/O happens here.

The kernel asks for attributes with every listing, whoever reads it, and attributes cost several times what names cost.
Programs that walk through samples want names alone, others look at every entry. So names are told alone until somebody
looks at one of them; then the next listings come with attributes, and after them one without, to see whether it is
still so. What the kernel was told with a listing it does not ask for, so only those without attributes teach.
"""

#: Listings with attributes for each without.
_BELIEVED = 15


class Habit:
    def __init__(self) -> None:
        self._believed = 0

    def wants_attributes(self) -> bool:
        """Of a listing that begins."""
        if not self._believed:
            return False
        self._believed -= 1
        return True

    def looked(self) -> None:
        """At an entry of a directory that had just been listed without attributes."""
        self._believed = _BELIEVED
