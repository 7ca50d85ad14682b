"""An MCP server as a program, for tests: `python mcp_programs.py ROLE`. It is made with the SDK alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

ROLE = sys.argv[1] if len(sys.argv) > 1 else "shop"


def shop() -> None:
    """A server with a few tools, one of which never returns, and which starts a program of its own."""
    from mcp.server.mcpserver import Image, MCPServer

    server = MCPServer("shop")
    child = subprocess.Popen(["sleep", "1000"])

    @server.tool()
    def family() -> list[int]:  # pyright: ignore[reportUnusedFunction]
        """The server's process and the one it started."""
        return [os.getpid(), child.pid]

    @server.tool()
    def surroundings() -> list[str]:  # pyright: ignore[reportUnusedFunction]
        """What it finds in its environment."""
        return sorted(os.environ)

    @server.tool()
    def picture() -> Any:  # pyright: ignore[reportUnusedFunction]
        """A picture."""
        return Image(data=b"picture", format="png")

    @server.tool()
    def hang() -> str:  # pyright: ignore[reportUnusedFunction]
        """Never returns."""
        print("this is not a message", file=sys.stderr, flush=True)
        time.sleep(1000)
        return ""

    server.run(transport="stdio")


def stubborn() -> None:
    """Ignores that its input is closed and that it is told to end, after it has said where it is."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with open(sys.argv[2], "w") as file:
        file.write(str(os.getpid()))
    time.sleep(1000)


def chatty() -> None:
    """Prints what is no message, and then a line without an end."""
    print("Welcome!", flush=True)
    with open(sys.argv[2], "w") as file:
        file.write(str(os.getpid()))
    while True:
        sys.stdout.write("x" * 65_536)


def broken() -> None:
    """Says why, and ends."""
    print("cannot read the licence file", file=sys.stderr)
    sys.exit(3)


if __name__ == "__main__":
    {"shop": shop, "stubborn": stubborn, "chatty": chatty, "broken": broken}[ROLE]()
