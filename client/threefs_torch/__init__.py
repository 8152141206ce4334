"""threefs for PyTorch: distributed checkpoints and safetensors files. Needs torch (`pip install 'threefs[torch]'`)."""

from threefs_torch.reader import ThreeFSReader
from threefs_torch.safetensors_file import SafetensorsFile, load_file, load_once, save_file
from threefs_torch.writer import ThreeFSWriter

__all__ = ["SafetensorsFile", "ThreeFSReader", "ThreeFSWriter", "load_file", "load_once", "save_file"]
