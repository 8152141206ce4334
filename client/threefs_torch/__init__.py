"""threefs for PyTorch: torch.distributed.checkpoint. Needs torch (`pip install 'threefs[torch]'`)."""

from threefs_torch.reader import ThreeFSReader
from threefs_torch.writer import ThreeFSWriter

__all__ = ["ThreeFSReader", "ThreeFSWriter"]
