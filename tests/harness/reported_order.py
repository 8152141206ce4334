"""A shortcut of the checker: whether the order in which a system says that it made its changes explains what was seen.

It needs no search. The order itself is not believed: it is followed step by step as late as the returns of operations
allow, and everything that was read must fit. If it does not, nothing is known, and the search has to decide.
"""

from collections.abc import Iterable, Sequence

from tests.harness.history import Kind, Operation
from tests.harness.linearizability import Contents, Timeline


def explains(operations: Iterable[Operation], order: Sequence[Operation], content: bytes | None = None) -> bool:
    """`order` has changes of these operations; what is not in it has had no effect. False: not, or not so."""
    timeline = Timeline(operations)
    reads = [one for one in timeline.operations if one.kind is Kind.READ]
    contents = Contents([content], {content: 0}, all(one.padded for one in reads))
    names = {id(one): name for name, one in enumerate(timeline.operations)}
    coming = [names[id(one)] for one in order if id(one) in names]
    return _follow(timeline, contents, coming)


def _follow(timeline: Timeline, contents: Contents, coming: Sequence[int]) -> bool:
    operations, number, taken = timeline.operations, 0, 0
    begun: set[int] = set()
    done: set[int] = set()
    for name, returns in timeline.events:
        if not returns:
            begun.add(name)
            if timeline.is_read[name] and contents.fits(number, name, operations[name]):
                done.add(name)
            continue
        while name not in done:
            if taken == len(coming) or coming[taken] not in begun or coming[taken] in done:
                return False  # not enough is told, or what was not asked for yet, or something twice
            change = coming[taken]
            taken += 1
            number = contents.after(number, change, operations[change])
            done.add(change)
            done.update(
                read
                for read in begun
                if timeline.is_read[read] and read not in done and contents.fits(number, read, operations[read])
            )
        begun.discard(name)
    return True
