"""threefs: a distributed file system for AI training and inference."""

__version__ = "0.1.0"
