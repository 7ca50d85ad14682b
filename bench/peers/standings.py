"""Where Callboard stands among its peers: its rate over each peer's, of the same rounds, and whether the aims hold.

The peers are of three kinds. Durable ones keep a turn on disk, and are the ones to be compared with. Frameworks in memory do the
work of an agent and keep nothing. Message passing has no model, no stream and no tool in it; it is shown, and no aim is set.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import product

from ..figures import Rounds
from ..measure import quiet
from .cases import DURABLE, LOADS, MESSAGE_PASSING, PEERS

TIMES = 20.0
"""How many times the best durable peer Callboard should be, with 200 agents at once."""


def ratios(peer: str, label: str, rounds: Rounds, mode: str = "") -> list[float]:
    """Callboard's rate over the peer's, round by round; nothing if one of them did not run. `mode` is Callboard's alone, such as
    `, gc server`: peers run with Python's own settings, as their users would."""
    mine, its = rounds.get(f"{label}{mode}", []), rounds.get(f"{peer} {label}", [])
    return [a.per_s / b.per_s for a, b in zip(mine, its, strict=False)]


def table(rounds: Rounds) -> str:
    """Callboard divided by each peer, as a table for people; it is markdown, too."""
    labels = [label for label, *_ in LOADS]
    rows = ["| callboard over | " + " | ".join(labels) + " |", "|---" * (len(labels) + 1) + "|"]
    for peer in PEERS:
        cells = [_cell(ratios(peer, label, rounds)) for label in labels]
        if any(cells):
            rows.append(f"| {peer} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def aims(rounds: Rounds) -> list[str]:
    """The aims among peers, one line each: what was measured, and whether it holds."""
    lines: list[str] = []
    for label, mode in product(("turn x200", "tool x200"), ("", ", gc server")):
        best = _nearest(DURABLE, label, rounds, mode)
        if best is not None:
            aim = f"{label}{mode}: at least {TIMES:g} times the best durable peer"
            lines.append(_line(aim, best, TIMES, quiet(rounds[f"{label}{mode}"])))
    frameworks = [peer for peer in PEERS if peer not in DURABLE and peer not in MESSAGE_PASSING]
    best = _nearest(frameworks, "turn x200", rounds)
    if best is not None:
        lines.append(_line("turn x200: ahead of every framework in memory", best, 1.0, quiet(rounds["turn x200"])))
    return lines


def _nearest(peers: Sequence[str], label: str, rounds: Rounds, mode: str = "") -> tuple[float, str] | None:
    """The peer that comes closest, and how many times its rate is ours."""
    found = [(statistics.median(r), peer) for peer in peers if (r := ratios(peer, label, rounds, mode))]
    return min(found, default=None)


def _line(aim: str, best: tuple[float, str], bound: float, sure: bool) -> str:
    times, peer = best
    doubt = "" if sure else ", unsure: others were busy"
    return f"* {aim}: {times:.1f} times {peer}: {'holds' if times >= bound else 'missed'}{doubt}"


def _cell(values: Sequence[float]) -> str:
    if not values:
        return ""
    return f"{statistics.median(values):.2g} ({min(values):.2g}-{max(values):.2g})"
