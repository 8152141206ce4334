"""Datasets of many small samples in a few large files, read in shuffled batches."""

from threefs_data.dataset import Dataset
from threefs_data.epochs import Epoch
from threefs_data.loader import Batch, batches
from threefs_data.writer import DatasetWriter, pack, pack_files

__all__ = ["Batch", "Dataset", "DatasetWriter", "Epoch", "batches", "pack", "pack_files"]
