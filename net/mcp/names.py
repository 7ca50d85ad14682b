"""What a server's tools are called here: `server__tool`, in the letters that providers allow, without clashes.

A server may call its tools what it likes, two of them may come to the same name here, and a list may change under a running
agent. A name is part of every request and of every record of a call, so it must not move: a tool keeps the name that it was
given as long as the process lives, and the same list gives the same names after a restart. Pure: names in, names out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from hashlib import sha256

LONGEST = 64
"""Characters that providers allow in the name of a tool."""
_OTHER = re.compile(r"[^a-zA-Z0-9_-]")


def prefix_of(server: str) -> str:
    """What the names of all tools of a server begin with."""
    return f"{_OTHER.sub('_', server)[: LONGEST // 2]}__"


def assign(server: str, tools: Iterable[str], known: Mapping[str, str] | None = None) -> dict[str, str]:
    """The server's own name of each tool → its name here.

    Args:
        server: the name that the server has here.
        tools: the names of its tools, as it gives them.
        known: names that were given before, and stay.
    """
    tools, kept = set(tools), dict(known or {})
    names = {tool: kept[tool] for tool in tools & kept.keys()}
    taken = set(kept.values())
    # Those whose name needs no change come first, so that a neighbour that has to bend never takes it from them.
    for tool in sorted(tools - names.keys(), key=lambda tool: (_OTHER.search(tool) is not None, tool)):
        names[tool] = free(_fitted(prefix_of(server) + _OTHER.sub("_", tool)), taken)
        taken.add(names[tool])
    return names


def free(name: str, taken: Collection[str]) -> str:
    """The name, numbered if somebody has it already."""
    number, candidate = 1, name
    while candidate in taken:
        number += 1
        candidate = f"{name[: LONGEST - len(str(number)) - 1]}_{number}"
    return candidate


def _fitted(name: str) -> str:
    """A name that is too long ends in a piece of its digest: cut alone, long names with one beginning would be one."""
    if len(name) <= LONGEST:
        return name
    return f"{name[: LONGEST - 9]}_{sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"
