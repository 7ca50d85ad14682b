"""The one door to the official MCP SDK, which is an extra: imported when a server is needed (it takes half a second)."""

from __future__ import annotations

from types import ModuleType

from ...storage.errors import UsageError


def library() -> ModuleType:
    """The package `mcp`.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import mcp
    except ImportError as error:
        raise UsageError("MCP needs the official SDK: pip install 'callboard[mcp]'") from error
    return mcp
