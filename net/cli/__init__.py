"""The command line: `callboard demo | run | serve | ls | log | ...`, the store or a service's URL first.

main        from words to an exit code; the one place where errors become sentences
parser      the words
problems    exit codes, and what an error says to a person or a program
output      one way to print, for people or as JSON
signals     an interrupt is a shutdown: open turns are left to go on with
demo, run, serve, ls, log, tail, approvals, answer, verify     one module for each command, imported when it is asked for
where       whether the first word is a folder or a URL
lines       a record as a line for people; `loading` finds the agent in `FILE:NAME`
"""

from __future__ import annotations

from .main import main

__all__ = ["main"]
