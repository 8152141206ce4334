"""Datasets of many small samples in a few large files, read in shuffled batches."""

from threefs_data.batch import Batch
from threefs_data.curriculum import Curriculum
from threefs_data.dataset import Dataset
from threefs_data.dataset_writer import DatasetWriter, pack, pack_files
from threefs_data.loader import Loader
from threefs_data.mixture import Mixture
from threefs_data.order import Order, Sequential, Shuffled
from threefs_data.packed_loader import PackedBatch, PackedLoader
from threefs_data.packing import Packing
from threefs_data.source import Datasets

__all__ = [
    "Batch",
    "Curriculum",
    "Dataset",
    "DatasetWriter",
    "Datasets",
    "Loader",
    "Mixture",
    "Order",
    "PackedBatch",
    "PackedLoader",
    "Packing",
    "Sequential",
    "Shuffled",
    "pack",
    "pack_files",
]
