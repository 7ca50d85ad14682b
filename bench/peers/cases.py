"""A case for each peer and load: its script runs in its own environment and prints one sample."""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path

import msgspec

from ..case import Case
from ..measure import Beside, Sample
from .environments import interpreter

SCRIPTS = Path(__file__).resolve().parent / "scripts"
LOADS = (("turn x1", 1, 60, False), ("turn x200", 200, 2, False), ("tool x1", 1, 40, True), ("tool x200", 200, 2, True))
"""Label, agents, turns of each, with a tool: the same work as ours, less of it, since a peer takes up to a hundred times as
long."""
PEERS: dict[str, tuple[str, str]] = {
    "langgraph sqlite": ("langgraph", "sqlite"),
    "langgraph memory": ("langgraph", "memory"),
    "dbos sqlite": ("dbos", "sqlite"),
    "openai-agents sqlite": ("openai_agents", "sqlite"),
    "openai-agents memory": ("openai_agents", "memory"),
    "pydantic-ai memory": ("pydantic_ai", "memory"),
    "autogen-core memory": ("autogen", "memory"),
    "pykka memory": ("pykka", "memory"),
}
"""Name → its script and environment, and the kind of memory it is run with."""
DURABLE = tuple(name for name in PEERS if name.endswith("sqlite"))
MESSAGE_PASSING = ("autogen-core memory", "pykka memory")
"""They pass a message to an object that joins twenty strings: the limit of that in Python, and no agents."""


def run(peer: str, agents: int, turns: int, tool: bool) -> Sample:
    """One sample of a peer."""
    script, memory = PEERS[peer]
    command = [str(interpreter(script)), str(SCRIPTS / f"on_{script}.py"), memory, str(agents), str(turns), str(int(tool))]
    with Beside() as beside:
        done = subprocess.run(command, capture_output=True, check=False, timeout=600)
    if done.returncode != 0:
        raise SystemExit(f"{peer} failed: {done.stderr.decode(errors='replace')[-2000:]}")
    return msgspec.structs.replace(msgspec.json.decode(done.stdout.splitlines()[-1], type=Sample), others=beside.others)


CASES = tuple(
    Case(f"{peer} {label}", partial(run, peer, agents, turns, tool), against=label, short=False)
    for label, agents, turns, tool in LOADS
    for peer in PEERS
)
