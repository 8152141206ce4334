"""The client library: files of a threefs cluster for blocking and for asyncio programs."""

from threefs.checksums import crc32c
from threefs.rpc.traffic_class import Dscp
from threefs_client.async_file import AsyncFile
from threefs_client.async_filesystem import AsyncFileSystem, connect_async
from threefs_client.attributes import Attributes, Entry, Space, Usage
from threefs_client.blocking.file import File
from threefs_client.blocking.filesystem import FileSystem, connect
from threefs_client.data.chunk_checksums import ChunkChecksum
from threefs_client.data.fallocate import Allocation
from threefs_client.metadata.quotas import Quota
from threefs_client.metadata.trash import Trashed
from threefs_client.options import Options

__all__ = [
    "Allocation",
    "AsyncFile",
    "AsyncFileSystem",
    "Attributes",
    "ChunkChecksum",
    "Dscp",
    "Entry",
    "File",
    "FileSystem",
    "Options",
    "Quota",
    "Space",
    "Trashed",
    "Usage",
    "connect",
    "connect_async",
    "crc32c",
]
