"""What reading samples at random costs, in bytes that are really read."""

from pathlib import Path

import numpy as np
import pytest
from threefs_data import Dataset

from tests.harness.synthetic_dataset import PATH, SAMPLE_BYTES, SyntheticFiles

TERABYTE = 1 << 40
READ_SAMPLES = 20_000
BATCH = 256


@pytest.mark.parametrize("has_lengths", [False, True])
def test_a_terabyte_of_small_samples_is_read_at_random_with_little_overhead(tmp_path: Path, has_lengths: bool) -> None:
    files = SyntheticFiles(str(tmp_path))
    files.has_lengths = has_lengths
    samples = files.prepare(TERABYTE // SAMPLE_BYTES)
    assert samples * SAMPLE_BYTES > 0.99 * TERABYTE
    dataset = Dataset(files, PATH, tables_bytes=64 << 20)
    numbers = np.random.default_rng(1).integers(0, samples, READ_SAMPLES)
    wanted = 0
    for first in range(0, READ_SAMPLES, BATCH):
        wanted += sum(map(len, dataset.read(numbers[first : first + BATCH].tolist())))
    amplification = files.bytes_read / wanted
    print(f"{amplification:.3f} bytes read per byte of {'different lengths' if has_lengths else 'one length'}")
    assert 1 < amplification <= 1.2
