"""Writes the pages of docs/ that are drawn from the code, so that they cannot say anything else than the code does.

    python docs/generate.py            write them
    python docs/generate.py --check    fail if one of them is stale

`PAGES` names every generated page and the function that makes its text; a test and CI compare each with the file.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from callboard.actors import seams, values
from callboard.actors.turns import states
from callboard.mailbox import items
from callboard.net.cli import parser, problems
from callboard.net.wire import closes, failures, frames, methods
from callboard.storage import errors, messages
from callboard.storage.events import EVENTS, around, base, dialogue, lifecycle

DOCS = Path(__file__).resolve().parent
NOTICE = "<!-- Written by docs/generate.py from the code. Run `make docs` after a change; do not edit. -->"
FAMILIES: tuple[tuple[str, ModuleType], ...] = (
    ("Lifecycle", lifecycle),
    ("Dialogue", dialogue),
    ("Around", around),
)

Shape = type[msgspec.Struct]


# -- pages


def events_page() -> str:
    """`events.md`: every event of the log, by family, with the shapes it is made of."""
    parts = [
        "# The vocabulary of the log",
        NOTICE,
        "One log for each agent, one record a line: `seq` (dense, from 0), `time` (Unix milliseconds; it orders, it does not "
        "measure) and the event's own fields, flat:",
        '```json\n{"seq":7,"time":1764500000000,"type":"turn/end","turn":1,"reason":{"kind":"completed"}}\n```',
        "A field that has its default is left out of the record.",
        _overview(),
    ]
    for title, module in FAMILIES:
        parts += [f"## {title}", _paragraph(module)]
        for cls in _in_module(EVENTS.values(), module):
            parts += [f"### `{_tag(cls)}`", _paragraph(cls), _fields_table(cls)]
    parts += ["## Shared shapes", "What the fields above are made of. A tag is written into the object under the key named here."]
    for cls in (*_structs(base), *_structs(messages)):
        parts += [f"### {cls.__name__}", _tag_line(cls), _paragraph(cls), _fields_table(cls)]
    parts += ["### Names for sets", _sets_table()]
    parts += ["## How the vocabulary may change", _rules(base)]
    return "\n\n".join(p for p in parts if p) + "\n"


def states_page() -> str:
    """`states.md`: the table of a turn, and the diagram drawn from it."""
    parts = [
        "# The states of a turn",
        NOTICE,
        "A turn is one walk through this table. Anything that is not in it fails by name, never silently. Each state leaves an "
        "entry in the trace of `turn/end` (see [events.md](events.md#turnend)), also when it failed or was cancelled.",
        states.table().strip(),
        f"```mermaid\n{states.diagram().strip()}\n```",
        "A turn that is left open and taken up is walked again from RESTORE. Its trace goes on where it was: behind a close the "
        "walk before it is in `turn/suspend`, one that waits for a person keeps it in memory; what a killed process knew of its "
        "walk is gone, and the records that it left tell how far it came. Of a turn that is taken up again and again, the first "
        f"{len(states.STATES)} entries are kept and the last, {states.LONGEST} in all.",
    ]
    return "\n\n".join(parts) + "\n"


def seams_page() -> str:
    """`seams.md`: every method of `Plugin`, with what it gets and answers."""
    parts = [
        "# The seams",
        NOTICE,
        "Each is a method of `Plugin`; override what you need. How they work together is in [plugins.md](plugins.md).",
    ]
    for title, names, text in SEAM_KINDS:
        parts += [f"## {title}", text, _seams_table(names)]
    return "\n\n".join(parts) + "\n"


def errors_page() -> str:
    """`errors.md`: the tree, and what each error says."""
    classes = [value for value in vars(errors).values() if _is_error(value)]
    tree = (inspect.getdoc(errors) or "").split("\n\n")
    parts = [
        "# Errors",
        NOTICE,
        tree[0],
        f"```text\n{inspect.cleandoc(tree[1])}\n```",
        " ".join(tree[2].partition("This module")[0].split()),
        "All are imported from `callboard.storage`. A turn that ends badly raises nothing by itself: it is an `Outcome` whose "
        "`reason` says how, and `outcome.result()` raises `TurnFailed`.",
        "Failure codes that another try may cure: " + ", ".join(f"`{c}`" for c in sorted(errors.TRANSIENT_CODES)) + ".",
    ]
    rows = ["| error | is a | says |", "|---|---|---|"]
    rows += [f"| `{c.__name__}` | {_bases(c)} | {_cell(_paragraph(c))} |" for c in classes]
    return "\n\n".join([*parts, "\n".join(rows)]) + "\n"


def cli_page() -> str:
    """`cli.md`: the commands with their words, and the exit codes."""
    grammar: Any = parser.make_parser()
    commands = next(a for a in grammar._actions if a.dest == "command").choices
    parts = [
        "# The command line",
        NOTICE,
        "Output is for people; with `--json` it is JSON, one value a line, and nothing else. An error is one sentence that says "
        "what to do.",
    ]
    for name, command in commands.items():
        actions: list[Any] = sorted((a for a in command._actions if a.dest != "help"), key=lambda a: bool(a.option_strings))
        usage = " ".join(["callboard", name, *map(_usage, actions)])
        rows = ["| word | |", "|---|---|", *(f"| {_cell(f'`{_words(a)}`')} | {_cell(_help(a))} |" for a in actions)]
        parts += [f"## {name}", command.description, f"```sh\n{usage}\n```", "\n".join(rows)]
    codes = next(block for block in (inspect.getdoc(problems) or "").split("\n\n") if block.lstrip().startswith("0 "))
    parts += ["## Exit codes", f"```text\n{inspect.cleandoc(codes)}\n```"]
    return "\n\n".join(parts) + "\n"


PROTOCOL = """A connection offers the subprotocol `callboard.v1`, and a token as `Authorization: Bearer TOKEN` or, in browsers, as
a second subprotocol `bearer.TOKEN`. What the handshake refuses it refuses with a status: 400 for another subprotocol, 401 for the
token or the page's origin, 426 for HTTP/1.0, 429 when too many wrong tokens came from the address, 503 when there are too many
connections, or while the service recovers or drains. The first frame of the service is `hello`.

Calls run side by side; answers come in the order in which they are ready. Content is a text, or a list of `text`, `image` and
`file` blocks. Records have the form of an exported log ([events.md](events.md)):
`{"seq":7,"time":1764500000000,"type":"turn/end",...}`. A stream is resumed on another connection by following `after` the last
`upto` that was dealt with. [service.md](service.md) says how to run a service and use its client; `tests/net/frames/` has each
method's frames, both ways."""
ON_THE_WIRE: tuple[Shape, ...] = (
    methods.Known,
    methods.AgentsPage,
    methods.RecordsPage,
    methods.Followed,
    values.Outcome,
    values.Receipt,
    values.AgentInfo,
    values.Wait,
    values.AgentSummary,
    values.Approval,
    values.Timer,
    items.Item,
)
"""What methods answer with; messages, usage and end reasons are in events.md."""


def protocol_page() -> str:
    """`protocol.md`: every method of the service, with its parameters, its result and its scope."""
    parts = ["# The protocol", NOTICE, _below_first_line(frames), PROTOCOL]
    rows = ["| method | scope | repeatable | |", "|---|---|---|---|"]
    for method in methods.METHODS.values():
        repeatable = "yes" if method.repeatable else "no"
        rows.append(f"| [`{method.name}`](#{method.name}) | {method.scope} | {repeatable} | {_cell(method.text)} |")
    parts += ["## Methods", _below_first_line(methods), "\n".join(rows)]
    for method in methods.METHODS.values():
        parts += [f"### {method.name}", method.text, *_shape(method.params), f"Result: `{_type_name(method.result)}`"]
    parts += ["## Notifications of the client", "They have no id, and nothing answers."]
    parts += [part for name, params in methods.NOTES.items() for part in (f"### {name}", *_shape(params))]
    parts += ["## Notifications of the service"]
    sent: dict[str, Shape] = {"hello": methods.Hello, "records": methods.Page, "ended": methods.Ended}
    parts += [part for name, params in sent.items() for part in (f"### {name}", *_shape(params))]
    parts += ["## Results", *(part for cls in ON_THE_WIRE for part in (f"### {cls.__name__}", *_shape(cls)))]
    codes = ["| code | of |", "|---|---|", *(f"| {code} | `{cls.__name__}` and those below it |" for cls, code in failures.CODES)]
    parts += ["## Errors", _below_first_line(failures), "\n".join(codes)]
    closed = ["| code | |", "|---|---|", *(f"| {code} | {_cell(text)} |" for code, text in closes.CLOSES.items())]
    return "\n\n".join(p for p in (*parts, "## Closes", "\n".join(closed)) if p) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "cli.md": cli_page,
    "errors.md": errors_page,
    "events.md": events_page,
    "protocol.md": protocol_page,
    "seams.md": seams_page,
    "states.md": states_page,
}
"""Name below docs/ → the function that makes its text."""


# -- pieces of events.md


def _overview() -> str:
    rows = ["| type | says |", "|---|---|"]
    for name, cls in EVENTS.items():
        anchor = name.replace("/", "")
        rows.append(f"| [`{name}`](#{anchor}) | {_cell(_paragraph(cls))} |")
    return "\n".join(rows)


def _fields_table(cls: Shape) -> str:
    fields = msgspec.structs.fields(cls)
    if not fields:
        return ""
    rows = ["| field | type | default |", "|---|---|---|"]
    for field in fields:
        written = _annotation(cls, field.name)
        rows.append(f"| `{field.encode_name}` | {_cell(f'`{written}`')} | {_cell(_default(field))} |")
    return "\n".join(rows)


def _annotation(cls: Shape, name: str) -> str:
    """The field's type as the source has it; structs here keep their annotations as text."""
    for owner in cls.__mro__:
        written = inspect.get_annotations(owner).get(name)
        if written is not None:
            return str(written)
    raise LookupError(f"{cls.__name__} has no annotation for {name}")


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    if field.default is msgspec.NODEFAULT:
        return "a new one"
    value: Any = field.default
    if value is None:
        return "none"
    if isinstance(value, msgspec.Struct):
        return f"an empty {type(value).__name__}"
    return f"`{str(value).lower() if isinstance(value, bool) else value!r}`"


def _sets_table() -> str:
    """Names that stand for one of several words or shapes, as the source defines them."""
    rows = ["| name | one of |", "|---|---|"]
    for module in (base, dialogue, messages):
        for node in ast.parse(inspect.getsource(module)).body:
            if isinstance(node, ast.Assign) and _is_set(node.value):
                members = node.value.slice if isinstance(node.value, ast.Subscript) else node.value
                words = ast.unparse(members).strip("()").replace("'", "").replace(" | ", ", ")
                rows.append(f"| `{ast.unparse(node.targets[0])}` | {words} |")
    return "\n".join(rows)


def _is_set(value: ast.expr) -> bool:
    literal = isinstance(value, ast.Subscript) and ast.unparse(value.value) == "Literal"
    return literal or (isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitOr))


def _tag_line(cls: Shape) -> str:
    config = cls.__struct_config__
    return f"`{config.tag_field}`: `{config.tag}`" if config.tag is not None else ""


def _rules(module: ModuleType) -> str:
    """The rules of evolution, as the module states them below its first line."""
    return (inspect.getdoc(module) or "").split("\n\n", 1)[1].replace("\n", " ")


# -- pieces of the other pages


def _shape(cls: Shape) -> tuple[str, str]:
    return _paragraph(cls), _fields_table(cls)


def _below_first_line(module: ModuleType) -> str:
    return "\n\n".join(" ".join(part.split()) for part in (inspect.getdoc(module) or "").split("\n\n")[1:])


def _type_name(result: Any) -> str:
    """A type as people write it, without where its parts come from."""
    if result is None or isinstance(result, type):
        return "null" if result is None else result.__name__
    return re.sub(r"(?:\w+\.)+(\w+)", r"\1", str(result)).replace("[Any]", "").replace("Literal[False]", "false")


AROUND = ("on_start", "on_stop")
PLAIN = ("stream", "guard", "turn_stopping")
SEAM_KINDS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (
        "Waterfalls",
        seams.WATERFALLS,
        "`async def seam(self, ctx, value, next)`: change the value on the way in, the answer on the way out, or answer alone.",
    ),
    ("Stream, guard, stopping", PLAIN, "These have a shape of their own, which their line says."),
    ("Observers", seams.OBSERVERS, "They see what is committed; nothing waits for them."),
    ("Around the system's life", AROUND, "Called once for each plugin and system."),
)
"""Heading, seams, and what is common to them."""


def _seams_table(names: Iterable[str]) -> str:
    rows = ["| seam | gets | answers | |", "|---|---|---|---|"]
    for name in names:
        method = getattr(seams.Plugin, name)
        signature = inspect.signature(method)
        given = [str(p.annotation) for p in signature.parameters.values() if p.name not in ("self", "ctx", "next")]
        gets = f"`{given[0]}`" if given and given[0] != "Any" else ""
        answers = f"`{signature.return_annotation}`" if str(signature.return_annotation) != "None" else ""
        rows.append(f"| `{name}` | {gets} | {_cell(answers)} | {_cell(_paragraph(method))} |")
    return "\n".join(rows)


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, errors.CallboardError)


def _bases(cls: type) -> str:
    return ", ".join(f"`{base.__name__}`" for base in cls.__bases__)


def _words(action: Any) -> str:
    """An argument as it is typed."""
    return " ".join([*action.option_strings, *([str(action.metavar)] if action.metavar else [])])


def _help(action: Any) -> str:
    text: str = action.help
    values: dict[str, Any] = action.__dict__
    return text % values


def _usage(action: Any) -> str:
    optional = action.nargs == "?" or (action.option_strings and not action.required)
    return f"[{_words(action)}]" if optional else _words(action)


# -- reading the code


def _structs(module: ModuleType) -> Iterator[Shape]:
    """The structs a module defines, in its order, its events left out."""
    for name, value in vars(module).items():
        own = isinstance(value, type) and issubclass(value, msgspec.Struct) and value.__module__ == module.__name__
        if own and value is not base.Event and value.__name__ == name:  # no second name of one that was there
            yield value


def _in_module(classes: Iterable[Shape], module: ModuleType) -> Iterator[Shape]:
    return (c for c in classes if c.__module__ == module.__name__)


def _tag(cls: Shape) -> str:
    return str(cls.__struct_config__.tag)


def _paragraph(thing: object) -> str:
    """A docstring as one paragraph."""
    return " ".join((inspect.getdoc(thing) or "").split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


# -- writing


def stale() -> list[str]:
    """Names of the pages whose file differs from what the code says."""
    return [name for name, make in PAGES.items() if _on_disk(name) != make()]


def _on_disk(name: str) -> str:
    path = DOCS / name
    return path.read_text(encoding="utf-8") if path.exists() else ""


def main(arguments: list[str]) -> int:
    """Write the pages, or check them; the exit code."""
    if "--check" in arguments:
        old = stale()
        if old:
            print(f"stale: {', '.join('docs/' + n for n in old)}; run make docs", file=sys.stderr)
        return 1 if old else 0
    for name, make in PAGES.items():
        (DOCS / name).write_text(make(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
