"""Plots of a run that was kept: the two curves that have to be flat, and where Callboard stands among its peers.

Small SVG files with text that stays text, and nothing in them that changes when the figures do not. matplotlib is an extra
(`plots`).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from callboard.storage.errors import UsageError

from .figures import Rounds
from .measure import middle
from .peers.cases import DURABLE, MESSAGE_PASSING, PEERS

OURS, DURABLE_COLOUR, MEMORY_COLOUR, PASSING_COLOUR = "#1f5fbf", "#c2571a", "#8a8f98", "#c9ccd1"
STYLE = {
    "svg.hashsalt": "callboard",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def events_against_length(axes: Any, rounds: Rounds) -> None:
    """CPU of a record as the log grows."""
    points = middle(rounds["events against length"]).points or ()
    axes.plot([x / 1000 for x, _ in points], [y for _, y in points], marker="o", color=OURS)
    axes.set(xlabel="records in the log, thousands", ylabel="CPU of a record, µs", ylim=(0, None))
    axes.set_title("One agent, turn after turn, nothing summarised")


def turns_against_agents(axes: Any, rounds: Rounds) -> None:
    """CPU of a turn as agents become many."""
    points = middle(rounds["turns against agents"]).points or ()
    axes.plot([x for x, _ in points], [y for _, y in points], marker="o", color=OURS)
    axes.set(xlabel="agents at once", ylabel="CPU of a turn, µs", xscale="log", ylim=(0, None))
    axes.set_xticks([x for x, _ in points], [f"{x:,.0f}" for x, _ in points])
    axes.minorticks_off()
    axes.set_title("Turns of 20 chunks, every one on disk")


def turns_of_peers(axes: Any, rounds: Rounds) -> None:
    """Turns a second with 200 agents at once, everybody in one run."""
    names = ["callboard", *(peer for peer in PEERS if rounds.get(f"{peer} turn x200"))]
    rates = [statistics.median(s.per_s for s in rounds[_case(name)]) for name in names]
    order = sorted(range(len(names)), key=rates.__getitem__)
    bars = axes.barh([names[i] for i in order], [rates[i] for i in order], color=[_colour(names[i]) for i in order])
    axes.bar_label(bars, fmt="{:,.0f}", padding=3)
    axes.set(xscale="log", xlabel="turns a second, 200 agents at once (logarithmic)")
    axes.set_title("Blue: ours, durable. Orange: durable. Grey: in memory. Light: message passing alone", fontsize=8)
    axes.margins(x=0.15)


PLOTS: Mapping[str, tuple[Callable[[Any, Rounds], None], str]] = {
    "events-against-length.svg": (events_against_length, "events against length"),
    "turns-against-agents.svg": (turns_against_agents, "turns against agents"),
    "turns-of-peers.svg": (turns_of_peers, "turn x200"),
}
"""File → what draws it, and a case that it cannot do without."""


def draw(rounds: Rounds, folder: Path) -> list[Path]:
    """Draw what the run has figures for; the files.

    Raises:
        UsageError: matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise UsageError("plots need matplotlib: pip install 'callboard[plots]'") from error
    matplotlib.use("svg")
    pyplot: Any = import_module("matplotlib.pyplot")  # its types are half unknown
    drawn: list[Path] = []
    for name, (plot, needs) in PLOTS.items():
        if not rounds.get(needs):
            continue
        with pyplot.rc_context(STYLE):
            picture, axes = pyplot.subplots(figsize=(6.4, 3.2), layout="constrained")
            plot(axes, rounds)
            picture.savefig(folder / name, metadata={"Date": None})
            pyplot.close(picture)
        drawn.append(folder / name)
    return drawn


def _case(name: str) -> str:
    return "turn x200" if name == "callboard" else f"{name} turn x200"


def _colour(name: str) -> str:
    if name == "callboard":
        return OURS
    return DURABLE_COLOUR if name in DURABLE else PASSING_COLOUR if name in MESSAGE_PASSING else MEMORY_COLOUR
