"""The definitions of the demo's two kinds of agents."""

from __future__ import annotations

from typing import Any

from ...actors.agent import Agent
from ...actors.delegation import delegate
from ...actors.limits import Limits
from .discovery import MOST_FILES
from .lead import LeadModel
from .reader import ReaderModel
from .tools import READING, ask_reader, list_files, write_report

AT_ONCE = 4
"""So many readers read at a time."""
LISTING_BYTES = 16 * 1024 * 1024
"""A listing of so many files must stay whole, where other results may be cut: the lead cannot go on from a piece of it."""


def cast(*, pace: float = 0.0) -> tuple[Agent[Any, str], Agent[Any, str]]:
    """The lead and its reader; `pace` is how many seconds a model's answer takes.

    No plugins: the models are local, so there is nothing to retry, and the number of steps is given by the folder.
    """
    reader = Agent(
        "reader",
        model=ReaderModel(pace=pace),
        system="You read one file with your tools and report on it. Every figure comes from a tool.",
        tools=READING,
        plugins=(),
    )
    lead = Agent(
        "lead",
        model=LeadModel(pace=pace),
        system="You find out what is in a folder: one reader per file, ask back where a report is thin, then write the report.",
        tools=(list_files, delegate(reader, description="Give one file to a reader."), ask_reader, write_report),
        plugins=(),
        limits=Limits(parallel=AT_ONCE, children=MOST_FILES, output_bytes=LISTING_BYTES),
    )
    return lead, reader
