"""threefs: a distributed file system for AI training and inference."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from threefs_client import connect, connect_async

__version__ = "0.2.0"
__all__ = ["__version__", "connect", "connect_async"]


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


def __getattr__(name: str) -> Any:
    # Services use this library too and must not load the client with it.
    if name in ("connect", "connect_async"):
        import threefs_client

        return getattr(threefs_client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
