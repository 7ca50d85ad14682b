"""The demo: a lead agent gets a folder, one reader per text file reads it with real tools, and the lead writes a report.

    discovery   which files of a folder are read, and why the others are not      (file system)
    texts       figures and outlines of one text                                   (pure)
    effects     a ledger outside the store of what tool bodies really ran          (file system)
    tools       what the agents can do
    dialogue    a request's messages, as a rule-based model reads them             (pure)
    speech      a rule-based model's answers as a stream of chunks
    reader, lead    the two models: every decision from the messages alone         (pure)
    findings    what a reader reports, and how the report says it                  (pure)
    progress    who does what, folded from events; `screen` shows it
    performance the run itself: durable, taken up after a kill, checked at its end

No figure of the report is written by a model's rule: all come from tools that read the real files.
"""

from __future__ import annotations
