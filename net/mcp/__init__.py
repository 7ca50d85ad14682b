"""MCP both ways: tools of MCP servers for agents, and agents as tools for MCP clients.

`McpServer` is a plugin that keeps one server connected and offers its tools. `agents_server` makes a server of a system's agents,
and `serve_stdio` serves it over standard input and output. The official SDK (extra `mcp`) is imported when one of them is used.
"""

from __future__ import annotations

from .agents import agents_server
from .servers import McpServer
from .stdio import serve_stdio

__all__ = ["McpServer", "agents_server", "serve_stdio"]
