"""What a docstring says of a tool and of its parameters.

The model reads the docstring's paragraphs; sections written for programmers (`Returns:`, `Raises:`, ...) stay out, and what
`Args:` says of a parameter moves into the schema, where the model looks for it. Google's form alone is understood.
"""

from __future__ import annotations

import inspect
import re

_SECTION = re.compile(r"^(Args|Arguments|Parameters|Returns|Return|Raises|Yields|Examples?|Notes?):\s*$")
_PARAMETER = re.compile(r"^(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")
_GAP = re.compile(r"\n{3,}")
_ARGUMENTS = ("Args", "Arguments", "Parameters")


def split_docstring(docstring: str | None) -> tuple[str, dict[str, str]]:
    """The description, and parameter → text from the `Args:` section."""
    paragraphs: list[str] = []
    parameters: list[str] = []
    section = ""
    for line in inspect.cleandoc(docstring or "").splitlines():
        if heading := _SECTION.match(line):
            section = heading[1]
        elif section and line and not line.startswith(" "):
            section = ""  # an unindented line after a section is prose again
        if not section:
            paragraphs.append(line)
        elif section in _ARGUMENTS and not heading:
            parameters.append(line)
    return _GAP.sub("\n\n", "\n".join(paragraphs)).strip(), _parameters(parameters)


def _parameters(lines: list[str]) -> dict[str, str]:
    """`name: text` lines; a line indented deeper goes on with the text of the one before."""
    found: dict[str, str] = {}
    name = ""
    margin = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    for line in (line[margin:] for line in lines if line.strip()):
        if entry := _PARAMETER.match(line):
            name = entry[1]
            found[name] = entry[2].strip()
        elif name:
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found
