"""In which order workers take the files of tests when several run side by side.

A file that takes minutes must not be the last one to start, when the other workers have nothing left to do. Files that
wait for processes alternate with files that compute: three clusters that start at once on two cores keep each other
from renewing leases in time, and nothing would use the cores while they wait.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

#: How much longer a file with processes takes whose tests have been given time, at least.
_LONG = 3
#: Trees whose tests start processes.
OF_PROCESSES = ("bench", "chaos", "cluster", "e2e")


def in_turns(files: Mapping[str, Sequence[float]]) -> list[str]:
    """`files` has, by the path of a file below `tests`, how much time each of its tests has been given, in seconds; 0
    for a test that has what all have. Those that have been given most come first, then those with most tests."""
    order = sorted(files, key=lambda file: (-sum(files[file]), -len(files[file]), file))
    of_processes = [file for file in order if file.partition("/")[0] in OF_PROCESSES]
    others = [file for file in order if file.partition("/")[0] not in OF_PROCESSES]
    places = [
        *_places(of_processes, [_LONG if any(files[file]) else 1 for file in of_processes]),
        *_places(others, [len(files[file]) for file in others]),  # they take about as long as they have tests
    ]
    return [file for _, file in sorted(places)]


def _places(files: Sequence[str], weights: Sequence[int]) -> Iterator[tuple[float, str]]:
    """The middle of each if all of them, one behind the other, reach from 0 to 1."""
    for file, weight, end in zip(files, weights, accumulate(weights), strict=True):
        yield (end - weight / 2) / sum(weights), file
