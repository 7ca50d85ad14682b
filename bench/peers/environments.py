"""An environment for each peer: its packages would fight with ours, and with each other's.

They are made on first use under `.venv/peers/` with the package index that pip is set up for. Versions are fixed, so that a
figure can be taken again.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WHERE = ROOT / ".venv" / "peers"

PACKAGES: dict[str, tuple[str, ...]] = {
    "langgraph": ("langgraph==1.2.24", "langgraph-checkpoint-sqlite==3.1.2"),
    "dbos": ("dbos==3.4.0",),
    "openai_agents": ("openai-agents==0.24.0",),
    "pydantic_ai": ("pydantic-ai-slim==2.68.0",),
    "autogen": ("autogen-core==0.7.5",),
    "pykka": ("pykka==4.5.0",),
}
"""Peer → what its environment holds."""


def interpreter(peer: str) -> Path:
    """The Python of the peer's environment, made if it is not there.

    Raises:
        SystemExit: it cannot be made; pip's own words are in the message.
    """
    folder = WHERE / peer
    python, stamp = folder / "bin" / "python", folder / ".made"
    wanted = "\n".join(PACKAGES[peer])
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    print(f"making an environment for {peer} (once)", file=sys.stderr)
    _run([sys.executable, "-m", "venv", "--clear", str(folder)], peer)
    _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES[peer]], peer)
    stamp.write_text(wanted)
    return python


def _run(command: list[str], peer: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"there is no environment for {peer}: {done.stderr.strip()[-2000:]}")
