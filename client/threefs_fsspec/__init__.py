"""threefs for fsspec: `threefs://` paths in pandas, pyarrow, Dask, zarr, datasets and whatever else uses fsspec."""

from threefs_fsspec.filesystem import ThreefsFileSystem

__all__ = ["ThreefsFileSystem"]
