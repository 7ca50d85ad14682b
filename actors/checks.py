"""Checks of a definition's options: each error says what was probably meant.

A definition is written by hand, once, and run for months; the moment it is built is the cheapest to find a mistake. These
functions take what was given, whatever it is, and answer the value in its one form or raise `UsageError` naming the agent.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NoReturn

from ..storage.errors import UsageError
from .answers import ToolDefinition
from .limits import Limits

_NAME_LENGTH = 64


def closest(word: str, options: Iterable[str]) -> str:
    """ "; did you mean 'x'?" for the option most like `word`, or nothing."""
    match = difflib.get_close_matches(word, list(options), n=1, cutoff=0.5)
    return f"; did you mean {match[0]!r}?" if match else ""


def refuse_unknown(name: str, unknown: Mapping[str, object], options: Iterable[str]) -> NoReturn:
    """Raise for an option that does not exist."""
    option = next(iter(unknown))
    hint = closest(option, options) or f"; there are {', '.join(options)}"
    raise UsageError(f"Agent({name!r}) has no option {option!r}{hint}")


def check_by_name(option: str, given: Any, example: str) -> None:
    """An option of `System.open` that is a mapping from names."""
    if given is not None and not isinstance(given, Mapping):
        raise UsageError(f"{option}={given!r} has no names; give a mapping: {option}={{{example!r}: ...}}")


def check_duration(option: str, given: Any) -> None:
    """An option of `System.open` in seconds; endless is a number, too."""
    if isinstance(given, bool) or not isinstance(given, int | float) or not given >= 0:
        raise UsageError(f"{option}={given!r} is no number of seconds; for no end write {option}=math.inf")


def check_name(name: Any) -> None:
    """The name of a definition: a short text on one line."""
    if not isinstance(name, str):
        raise UsageError(f"an Agent's name is a text, not {name!r}; write Agent('planner', model=...)")
    if not name.strip():
        raise UsageError("an Agent needs a name; write Agent('planner', model=...)")
    if len(name) > _NAME_LENGTH or not name.isprintable():
        hint = "if it is the prompt, pass it as system="
        raise UsageError(f"the Agent's name {name[:40]!r} is longer than {_NAME_LENGTH} characters or has line breaks; {hint}")
    if name != name.strip():
        raise UsageError(f"the Agent's name {name!r} has blanks around it; write {name.strip()!r}")


def check_model(name: str, model: Any) -> None:
    """None, `provider:model`, or a Model that has a name."""
    if model is None:
        return
    if isinstance(model, str):
        provider, _, rest = model.partition(":")
        if not provider or not rest:
            meant = f"openai:{model.strip(':') or 'gpt-5'}" if model.count(":") == 0 or not provider else f"{provider}:gpt-5"
            raise UsageError(f"model={model!r} of agent {name!r} names no provider and model; did you mean {meant!r}?")
        return
    if isinstance(model, type):
        raise UsageError(f"model= of agent {name!r} is the class {model.__name__}; give an instance: {model.__name__}()")
    if not (hasattr(model, "provider") and hasattr(model, "prepare") and hasattr(model, "stream")):
        raise UsageError(f"model={model!r} of agent {name!r} is no model; give 'provider:model' or a callboard Model")
    if not getattr(model, "name", None):
        raise UsageError(f"the model of agent {name!r} has no name; say which one: model={type(model).__name__}().named('large')")


def check_system(name: str, system: Any) -> Any:
    """A text, or a function that renders one."""
    if isinstance(system, str) or callable(system):
        return system
    raise UsageError(f"system= of agent {name!r} is {system!r}; give a text or a function (ctx) -> text")


def make_toolbox(name: str, tools: Any) -> Mapping[str, ToolDefinition]:
    """The tools by name, in order of name, whatever order they came in."""
    given: Iterable[Any] = tools
    if isinstance(tools, str | Mapping) or not isinstance(tools, Iterable):
        raise UsageError(f"tools= of agent {name!r} is one object; give a list: tools=[{_tool_name(tools)}]")
    box: dict[str, ToolDefinition] = {}
    for tool in given:
        _check_tool(name, tool)
        if tool.name in box:
            raise UsageError(f"agent {name!r} has two tools named {tool.name!r}; give one of them another: name=...")
        box[tool.name] = tool
    return MappingProxyType(dict(sorted(box.items())))


def _tool_name(tool: Any) -> str:
    return str(getattr(tool, "name", None) or getattr(tool, "__name__", None) or repr(tool))


def _check_tool(name: str, tool: Any) -> None:
    if hasattr(tool, "toolbox"):
        raise UsageError(f"tools= of agent {name!r} holds the agent {tool.name!r}; wrap it: delegate(agent)")
    if all(hasattr(tool, wanted) for wanted in ("name", "description", "schema")):
        return
    if callable(tool) and not isinstance(tool, type):
        raise UsageError(f"tools= of agent {name!r} holds the plain function {_tool_name(tool)}; decorate it with @tool")
    raise UsageError(f"tools= of agent {name!r} holds {tool!r}, which is no tool; decorate a function with @tool")


def check_max_tokens(name: str, value: Any) -> int | None:
    """None or at least 1."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    raise UsageError(f"max_tokens={value!r} of agent {name!r} must be a whole number of at least 1, or None")


def check_limits(name: str, limits: Any) -> Limits:
    """A Limits."""
    if isinstance(limits, Limits):
        return limits
    raise UsageError(f"limits= of agent {name!r} is {limits!r}; give Limits(...), for example Limits(parallel=4)")


def one_of(name: str, option: str, value: Any, allowed: tuple[str, ...]) -> Any:
    """The value, if it is one of those allowed."""
    if value in allowed:
        return value
    hint = closest(value, allowed) if isinstance(value, str) else ""
    raise UsageError(f"{option}={value!r} of agent {name!r} is none of {', '.join(map(repr, allowed))}{hint}")


def as_texts(name: str, option: str, values: Any) -> tuple[str, ...]:
    """A tuple of texts."""
    if isinstance(values, str):
        raise UsageError(f"{option}={values!r} of agent {name!r} is one text; give a list: {option}=[{values!r}]")
    if not all(isinstance(value, str) for value in values):
        raise UsageError(f"{option}={values!r} of agent {name!r} must hold texts only")
    return tuple(values)


def check_context(name: str, context: Any) -> tuple[Any, ...]:
    """A tuple of functions."""
    if callable(context) or isinstance(context, str):
        raise UsageError(f"context= of agent {name!r} is one section; give a list: context=[...]")
    for section in context:
        if not callable(section):
            raise UsageError(f"context= of agent {name!r} holds {section!r}; each section is a function (ctx) -> text or None")
    return tuple(context)
