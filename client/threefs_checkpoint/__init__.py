"""Checkpoints: dictionaries of numpy arrays, written and read in whole chunks."""

from threefs_checkpoint.checkpoint import load, read_index, save
from threefs_checkpoint.format import ArrayInfo

__all__ = ["ArrayInfo", "load", "read_index", "save"]
