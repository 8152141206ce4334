"""Checkpoints: tensors of one or many ranks, written in whole chunks, verified, and published by one rename."""

from threefs_checkpoint.checkpoint import load, save
from threefs_checkpoint.exit_signal import ExitSignal
from threefs_checkpoint.group import Group, SingleGroup
from threefs_checkpoint.index import Derived, Index, Tensor
from threefs_checkpoint.job_directory import CheckpointDirectory, Published, read_index
from threefs_checkpoint.loading import LoadReport
from threefs_checkpoint.manager import CheckpointManager, Loaded, StepOutcome
from threefs_checkpoint.save_interval import Every
from threefs_checkpoint.saving import SaveFailedError, SaveReport, SaveVetoedError
from threefs_checkpoint.slices import Slice
from threefs_checkpoint.state import Shard
from threefs_checkpoint.thread_group import ThreadGroup

__all__ = [
    "CheckpointDirectory",
    "CheckpointManager",
    "Derived",
    "Every",
    "ExitSignal",
    "Group",
    "Index",
    "LoadReport",
    "Loaded",
    "Published",
    "SaveFailedError",
    "SaveReport",
    "SaveVetoedError",
    "Shard",
    "SingleGroup",
    "Slice",
    "StepOutcome",
    "Tensor",
    "ThreadGroup",
    "load",
    "read_index",
    "save",
]
