"""The words of the command line. Each command's module is imported only when it is asked for."""

from __future__ import annotations

import argparse
import difflib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from ..demo.discovery import DEFAULT_LIMIT, MOST_FILES
from . import problems
from .problems import Refused

if TYPE_CHECKING:
    _Commands = argparse._SubParsersAction["Parser"]  # pyright: ignore[reportPrivateUsage]

COMMANDS = (
    "demo",
    "chat",
    "run",
    "serve",
    "ls",
    "log",
    "tail",
    "approvals",
    "answer",
    "why",
    "fork",
    "verify",
    "backup",
    "batch",
    "mcp",
)
"""Every command; each is a module of this package with `async def command(arguments, output) -> int`."""


_AGENT = "the Agent NAME in the Python file FILE, with the file's `deps` and `models` if it has any"


class Parser(argparse.ArgumentParser):
    """argparse, but a mistake is an error like any other: one sentence, which `--json` turns into JSON."""

    def error(self, message: str) -> NoReturn:
        """Refuse the words."""
        raise Refused(f"{message}; see `{self.prog} --help`")


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The arguments in these words; `--help` and `--version` print and exit.

    Raises:
        Refused: the words make no command.
    """
    known = [word for word in words if not word.startswith("-")][:1]
    if known and known[0] not in COMMANDS:
        close = difflib.get_close_matches(known[0], COMMANDS, n=1)
        guess = f"did you mean `callboard {close[0]}`?" if close else f"the commands are {', '.join(COMMANDS)}"
        raise Refused(f"there is no command {known[0]!r}; {guess}")
    arguments, left = make_parser().parse_known_args(words)
    if left:
        raise Refused(f"unrecognized arguments: {' '.join(left)}; see `callboard {arguments.command} --help`")
    return arguments


def make_parser() -> Parser:
    """The whole grammar, for parsing and for the documentation."""
    parser = Parser(
        prog="callboard",
        description="A durable actor runtime for LLM agents.",
        epilog=_exit_codes(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"callboard {_version()}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)
    _add_demo(commands)
    _add_chat(commands)
    _add_run(commands)
    _add_serve(commands)
    _add_ls(commands)
    _add_log(commands)
    _add_tail(commands)
    _add_approvals(commands)
    _add_answer(commands)
    _add_why(commands)
    _add_fork(commands)
    _add_verify(commands)
    _add_backup(commands)
    _add_batch(commands)
    _add_mcp(commands)
    return parser


def _add(commands: _Commands, name: str, text: str) -> Parser:
    command = commands.add_parser(name, help=text, description=text)
    command.add_argument("--json", action="store_true", help="print JSON and nothing else")
    return command


def _add_demo(commands: _Commands) -> None:
    demo = _add(commands, "demo", "Let a team of local agents read a folder and write report.md. Kill it and run it again.")
    demo.add_argument("folder", nargs="?", default=".", metavar="FOLDER", help="the folder to read (default: this one)")
    demo.add_argument("--state", default="callboard-state", metavar="DIR", help="where everything is kept (default: %(default)s)")
    demo.add_argument("--report", default="report.md", metavar="FILE", help="what to write (default: %(default)s)")
    demo.add_argument(
        "--limit", type=count, default=DEFAULT_LIMIT, metavar="N", help="read at most N files (default: %(default)s)"
    )
    demo.add_argument(
        "--pace", type=seconds, default=None, metavar="S", help="seconds a model's answer takes (default: so that one can watch)"
    )


def _add_chat(commands: _Commands) -> None:
    chat = _add(commands, "chat", "Talk to an agent, at a terminal or through a pipe. Kill it and run it again.")
    where = "where everything is kept (default: %(default)s)"
    chat.add_argument("state", nargs="?", type=folder, default="callboard-chat", metavar="STATE", help=where)
    chat.add_argument("--agent", metavar="FILE:NAME", help=_AGENT)
    chat.add_argument(
        "--model", metavar="PROVIDER:NAME", help="a model to talk to (default: a small program that needs no key and says so)"
    )
    chat.add_argument("--id", metavar="ID", help="the agent's id (default: its definition's name)")


def _add_run(commands: _Commands) -> None:
    run = _add(commands, "run", "Send a text to an agent and print its answer.")
    run.add_argument("state", type=folder, metavar="STATE", help="the store: a folder, created if it is not there, or :memory:")
    run.add_argument("agent", metavar="FILE:NAME", help=_AGENT)
    run.add_argument("text", metavar="TEXT", help="what to say; - reads standard input")
    run.add_argument("--id", metavar="ID", help="the agent's id (default: its definition's name)")
    run.add_argument("--message-id", metavar="ID", help="the same id again waits for the same answer, also after a kill")
    run.add_argument("--model", metavar="PROVIDER:NAME", help="the model to ask (default: the definition's)")


def _add_serve(commands: _Commands) -> None:
    serve = _add(commands, "serve", "Serve the agents of a Python file over WebSocket and HTTP, until interrupted.")
    serve.add_argument("state", type=folder, metavar="STATE", help="the store: a folder, created if it is not there, or :memory:")
    serve.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="a Python file: its Agents, and its `deps`, `models` and `channels` if it has any (without one nothing runs)",
    )
    serve.add_argument("--port", type=port, default=8000, metavar="N", help="0 for any that is free (default: %(default)s)")
    serve.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="what to bind; without tokens loopback only (default: %(default)s)"
    )
    serve.add_argument("--tokens", metavar="TOML", help="who may do what (default: $CALLBOARD_TOKENS); see docs/service.md")
    serve.add_argument("--cert", metavar="PEM", help="a certificate, for TLS")
    serve.add_argument("--key", metavar="PEM", help="its key (default: in the same file)")
    serve.add_argument(
        "--connections", type=some, default=1000, metavar="N", help="how many may be open at once (default: %(default)s)"
    )
    serve.add_argument("--origin", action="append", default=[], metavar="URL", help="whose pages may connect; may be repeated")
    serve.add_argument(
        "--proxy",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="a proxy in front, on another machine, that says for whom it asks; may be repeated",
    )
    serve.add_argument(
        "--drain",
        choices=("finish", "leave"),
        default="finish",
        metavar="finish|leave",
        help="when it is told to end: let open turns finish, or leave them to the next start (default: %(default)s)",
    )
    serve.add_argument("--grace", type=seconds, default=30, metavar="S", help="seconds they may take (default: %(default)s)")


def _add_tail(commands: _Commands) -> None:
    tail = _add(commands, "tail", "Print an agent's records as they come, until interrupted.")
    _add_where(tail)
    tail.add_argument("agent", metavar="ID", help="the agent")
    tail.add_argument("--after", type=int, default=-1, metavar="SEQ", help="only records after this one")
    tail.add_argument("--types", type=lambda text: text.split(","), metavar="A,B", help="only records of these types")
    tail.add_argument("--chunks", action="store_true", help="also the chunks of streamed answers")


def _add_approvals(commands: _Commands) -> None:
    approvals = _add(commands, "approvals", "List the calls that wait for a person.")
    _add_where(approvals)
    approvals.add_argument("--prefix", default="", metavar="TEXT", help="only of agents whose ids begin so")


def _add_answer(commands: _Commands) -> None:
    answer = _add(commands, "answer", "Answer a call that waits for a person; in a folder only while no process runs its agents.")
    _add_where(answer)
    answer.add_argument("id", metavar="ID", help="the question, as `callboard approvals` lists it")
    answer.add_argument(
        "verdict", choices=("allow", "deny", "reply"), metavar="allow|deny|reply", help="reply: --text is the result"
    )
    answer.add_argument("--by", required=True, metavar="NAME", help="who decides; it is kept in the log")
    answer.add_argument("--text", metavar="TEXT", help="why it is denied, or what the call's result is")


def _add_why(commands: _Commands) -> None:
    why = _add(commands, "why", "Say what an agent waits for, and what will make it go on.")
    _add_where(why)
    why.add_argument("agent", metavar="ID", help="the agent")


def _add_fork(commands: _Commands) -> None:
    fork = _add(commands, "fork", "Make a new agent that shares another's records, while no process runs its agents.")
    fork.add_argument("state", metavar="STATE", help="the store's folder")
    fork.add_argument("agent", metavar="ID", help="the agent whose records are shared")
    where = fork.add_mutually_exclusive_group()
    where.add_argument("--at", type=int, metavar="SEQ", help="share records up to this one (default: all)")
    where.add_argument("--turn", type=int, metavar="N", help="share the records before turn N")
    fork.add_argument("--id", metavar="NEW", help="the new agent's id (default: one is made)")


def _add_mcp(commands: _Commands) -> None:
    mcp = _add(commands, "mcp", "Serve agents as tools over MCP, on standard input and output, to the client that starts this.")
    mcp.add_argument("state", type=folder, metavar="STATE", help="the store: a folder, created if it is not there, or :memory:")
    mcp.add_argument(
        "--agent", action="append", required=True, metavar="FILE:NAME", help="a Python file and the Agent in it; may be repeated"
    )
    mcp.add_argument("--prefix", default="mcp/", metavar="TEXT", help="what ids begin with (default: %(default)s)")


def _add_where(command: Parser) -> None:
    command.add_argument("where", metavar="STATE-or-URL", help="the store's folder, or a service: ws://HOST:PORT, or its page")
    command.add_argument("--token", metavar="TOKEN", help="for a service (default: $CALLBOARD_TOKEN)")


def _add_ls(commands: _Commands) -> None:
    ls = _add(commands, "ls", "List the agents of a store or a service.")
    _add_where(ls)
    ls.add_argument("--prefix", default="", metavar="TEXT", help="only ids that begin so")


def _add_log(commands: _Commands) -> None:
    log = _add(commands, "log", "Print an agent's log, one record a line; with --json all of it, as it can be imported.")
    _add_where(log)
    log.add_argument("agent", nargs="?", metavar="ID", help="the agent; with --search it may be left out, for all of them")
    log.add_argument("--after", type=int, default=-1, metavar="SEQ", help="only records after this one")
    log.add_argument("--types", type=lambda text: text.split(","), metavar="A,B", help="only records of these types")
    log.add_argument("--chunks", action="store_true", help="also the chunks of streamed answers")
    log.add_argument("--trace", action="store_true", help="instead of records, the states that each turn went through")
    log.add_argument(
        "--search", metavar="TEXT", help="instead of records, where this text stands, also what was summarised since"
    )


def _add_verify(commands: _Commands) -> None:
    verify = _add(commands, "verify", "Rebuild every request from the log before it and check every invariant.")
    verify.add_argument("state", metavar="STATE", help="the store's folder")
    verify.add_argument("agent", nargs="?", metavar="ID", help="only this agent")


def _add_backup(commands: _Commands) -> None:
    backup = _add(commands, "backup", "Copy a whole store, compacted; a process may run its agents meanwhile.")
    backup.add_argument("state", metavar="STATE", help="the store's folder")
    backup.add_argument("to", metavar="TO", help="a new folder, or an empty one")


def _add_batch(commands: _Commands) -> None:
    batch = _add(commands, "batch", "Run every task of a file by an agent of its own, score and count. Kill it and run it again.")
    batch.add_argument("tasks", metavar="TASKS.jsonl", help='lines of {"id": ..., "input": ..., "expected": ...}')
    batch.add_argument("--agent", required=True, metavar="FILE:NAME", help=_AGENT)
    batch.add_argument("--out", metavar="DIR", help="the run's folder: store and results.jsonl (default: runs/TASKS-AGENT)")
    batch.add_argument("--model", metavar="PROVIDER:NAME", help="in place of the Agent's own")
    batch.add_argument("--concurrency", type=some, default=20, metavar="N", help="attempts at a time (default: %(default)s)")
    batch.add_argument("--repeat", type=some, default=1, metavar="K", help="attempts at each task (default: %(default)s)")
    batch.add_argument(
        "--score", metavar="HOW", help="exact (default, if anything is expected), regex, judge:PROVIDER:MODEL, or FILE:NAME"
    )
    batch.add_argument("--rescore", action="store_true", help="ask the scorer again about what it has scored")
    batch.add_argument("--price", action="append", metavar="MODEL=IN/OUT", help="money for a million tokens; may be repeated")
    batch.add_argument("--compare", metavar="DIR", help="print how this run differs from the one in DIR")
    batch.add_argument("--what-if", metavar="NAME", help="run the attempts of a finished run again, as forks, and compare")
    batch.add_argument("--step", type=some, metavar="N", help="with --what-if: go on before this step instead of at the start")
    batch.add_argument("--only", action="append", metavar="TASK", help="with --what-if: only this task; may be repeated")


def folder(text: str) -> str:
    """The folder of a store: there or not, but no Python file, for which one would be made that has its name."""
    file = text.rpartition(":")[0] or text
    if file.endswith(".py") and os.path.isfile(file):
        raise argparse.ArgumentTypeError(f"{text} is a Python file; before it comes any folder, where everything is kept")
    return text


def some(text: str) -> int:
    """A whole number from 1 to a million."""
    if not text.isdecimal() or not 1 <= int(text) <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 1,000,000")
    return int(text)


def port(text: str) -> int:
    """The number of a port."""
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, from 0 to 65535")
    return int(text)


def count(text: str) -> int:
    """A whole number from 0 to the most files that a lead can give out."""
    if not text.isdecimal() or int(text) > MOST_FILES:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to {MOST_FILES:,}")
    return int(text)


def seconds(text: str) -> float:
    """A time in seconds, 0 or more."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 to 3600")
    return value


def _exit_codes() -> str:
    lines = (problems.__doc__ or "").split("\n\n")
    return "exit codes:\n" + next((block for block in lines if block.startswith("    0 ")), "")


def _version() -> str:
    from importlib.metadata import version

    return version("callboard")
