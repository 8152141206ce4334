"""The same samples in each format that the readers of `sample_readers.py` know, in a directory of the cluster.

python -m benchmarks.ml.sample_sets threefs://127.0.0.1:7000 /4k 16384 4096
"""

import sys
from collections.abc import Iterator

import numpy as np
import threefs_client
import threefs_data
from threefs_data.interchange import mds, webdataset
from threefs_data.interchange.exchange_directory import new_directory
from threefs_data.interchange.mds import Column

from benchmarks.measurements import MIB
from benchmarks.ml.sample_readers import FIELD, FLAT_NAME, MARK, MDS, RECORDS, TAR

_SHARDS = 16
_WRITE_BYTES = 4 * MIB


def samples(count: int, sample_bytes: int) -> Iterator[bytes]:
    """Each begins and ends with what says which one it is."""
    pattern = np.random.default_rng(3).bytes(sample_bytes)
    for number in range(count):
        mark = number * MARK % (1 << 64)
        yield number.to_bytes(8, "little") + pattern[8:-8] + mark.to_bytes(8, "little")


def write(fs: threefs_client.FileSystem, place: str, count: int, sample_bytes: int) -> None:
    """Below the directory `place`, which is made."""
    fs.mkdir(place, parents=True)
    shard_bytes = max(sample_bytes, count * sample_bytes // _SHARDS)
    threefs_data.pack(fs, samples(count, sample_bytes), f"{place}/{RECORDS}", shard_bytes=shard_bytes)
    with fs.open(f"{place}/{FLAT_NAME}", "wb") as file:
        waiting = bytearray()
        for sample in samples(count, sample_bytes):
            waiting += sample
            if len(waiting) >= _WRITE_BYTES:
                file.write(waiting)
                waiting = bytearray()
        file.write(waiting)
    with new_directory(fs, f"threefs://{place}/{MDS}") as directory:
        mds.write(directory, samples(count, sample_bytes), Column(FIELD), shard_bytes)
    with new_directory(fs, f"threefs://{place}/{TAR}") as directory:
        webdataset.write(directory, samples(count, sample_bytes), FIELD, shard_bytes)


if __name__ == "__main__":
    url, place, count, sample_bytes = sys.argv[1:]
    with threefs_client.connect(url) as cluster:
        write(cluster, place, int(count), int(sample_bytes))
