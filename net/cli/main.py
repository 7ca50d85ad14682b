"""From words to an exit code: parse, run the command's module under trio, and turn whatever goes wrong into one sentence."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Sequence
from functools import partial

import trio

from ...actors.collector import serve_many
from .output import Output
from .parser import parse
from .problems import FAULT, PIPE_CLOSED, describe, leaves
from .signals import until_signal

DEBUG = "CALLBOARD_DEBUG"


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is described in `problems`."""
    words = sys.argv[1:] if words is None else words
    _stand_in_for_closed()
    _tolerate_any_text()
    output = Output(json="--json" in words)
    try:
        code = _run(words, output)
        output.flush()
    except BrokenPipeError:
        return _pipe_closed()
    return code


def _run(words: Sequence[str], output: Output) -> int:
    try:
        arguments = parse(words)
        return trio.run(until_signal, partial(_command, arguments, output))
    except (Exception, KeyboardInterrupt) as error:
        if any(isinstance(leaf, BrokenPipeError) for leaf in leaves(error)):
            raise BrokenPipeError from error
        problem = describe(error)
        if os.environ.get(DEBUG):
            raise
        output.problem(problem)
        return problem.exit if problem.exit else FAULT


async def _command(arguments: argparse.Namespace, output: Output) -> int:
    module = importlib.import_module(f".{arguments.command}", __package__)
    serve_many()  # what is imported by now lives as long as the process
    return int(await module.command(arguments, output))


def _stand_in_for_closed() -> None:
    """A program may be started with its output closed (`>&-`), and then does its work unheard."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115  (they live as long as the process)
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115


def _tolerate_any_text() -> None:
    """Print what the terminal's encoding cannot say as escapes, instead of failing over it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _pipe_closed() -> int:
    # The interpreter flushes standard output once more at its end; it must not fail a second time.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return PIPE_CLOSED
