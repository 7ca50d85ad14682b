"""Agent: a frozen definition of what an agent is, with no state of its own.

A definition is made once and serves any number of agents; what an agent *has* (its log, inbox, turn) belongs to the System.
So a definition can be shared, copied with changes, compared across a restart and swapped under a running agent. Mistakes are
found when it is built, and the error guesses what was meant: a definition that exists can be run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn

from ..storage.errors import UsageError
from ..storage.messages import Settings
from .answers import ToolDefinition
from .checks import (
    as_texts,
    check_context,
    check_limits,
    check_max_tokens,
    check_model,
    check_name,
    check_system,
    make_toolbox,
    one_of,
    refuse_unknown,
)
from .limits import DEFAULT_LIMITS, Limits
from .output import Output, make_output
from .seams import Plugin, SeamContext, check_plugins

if TYPE_CHECKING:
    from typing import Never

    from typing_extensions import TypeVar

    from .models.model import Model

    Deps = TypeVar("Deps", default=Any)
    Out = TypeVar("Out", default=str)
else:
    from typing import TypeVar

    # TypeVar defaults exist at run time from Python 3.13 on; only the type checkers need them.
    Deps, Out = TypeVar("Deps"), TypeVar("Out")

Recovery = Literal["continue", "end"]
AfterError = Literal["park", "continue"]
Text = str | Callable[[SeamContext], str | Awaitable[str]]
"""A text, or a function that renders one for each step."""
Section = Callable[[SeamContext], str | Awaitable[str | None] | None]
"""A section of runtime context; None leaves it out."""


class Agent(Generic[Deps, Out]):
    """The definition of an agent; see the options at `__init__`. Frozen: `replace` makes a changed copy."""

    __slots__ = (
        "after_error",
        "context",
        "deps",
        "effort",
        "formerly",
        "limits",
        "max_tokens",
        "model",
        "name",
        "output",
        "plugins",
        "recovery",
        "settings",
        "stop",
        "system",
        "temperature",
        "toolbox",
        "tools",
        "typed",
    )
    name: str
    """What kind of agent this is; the log keeps it, so a new name needs `formerly`."""
    model: str | Model | None
    """`"provider:model"`, or an adapter that was given a name."""
    system: Text
    """The system prompt, or a function of the context that renders it for each step."""
    tools: tuple[ToolDefinition, ...]
    """Tools and delegations, in order of their names."""
    toolbox: Mapping[str, ToolDefinition]
    """The tools by name, in the same order whatever order they were given in."""
    plugins: tuple[Plugin, ...] | None
    """None: the default plugins. Empty: none at all."""
    max_tokens: int | None
    temperature: float | None
    limits: Limits
    recovery: Recovery
    after_error: AfterError
    effort: str | None
    stop: tuple[str, ...] | None
    settings: Mapping[str, Any] | None
    context: tuple[Section, ...]
    output: Any
    """The shape of the answer: a type, or a JSON schema; None for text."""
    typed: Output | None
    """That shape, checked: its schema, and the way from a text to a value."""
    deps: type[Deps] | None
    formerly: tuple[str, ...]

    def __init__(
        self,
        name: str,
        *,
        model: str | Model | None = None,
        system: Text = "",
        tools: Sequence[ToolDefinition] = (),
        plugins: Sequence[Plugin] | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        limits: Limits = DEFAULT_LIMITS,
        recovery: Recovery = "continue",
        after_error: AfterError = "park",
        effort: str | None = None,
        stop: Sequence[str] | None = None,
        settings: Mapping[str, Any] | None = None,
        context: Sequence[Section] = (),
        output: type[Out] | Mapping[str, Any] | None = None,
        deps: type[Deps] | None = None,
        formerly: Sequence[str] = (),
        **unknown: Never,
    ) -> None:
        """Define an agent.

        Args:
            name: what kind of agent this is.
            model: `"provider:model"`, or a Model with a name; None if a `request` seam supplies it.
            system: the system prompt, or `(ctx) -> text`, sync or async, rendered once in each step.
            tools: tools (`@tool`) and delegations (`delegate(agent)`).
            plugins: None for the default ones; a list replaces them.
            max_tokens: cap of one answer.
            temperature: of the sampling.
            limits: how much it may hold, take and wait for.
            recovery: after a crash an open turn goes on ("continue") or is closed as interrupted ("end").
            after_error: after a failed turn what is queued waits for a person ("park") or runs ("continue").
            effort: how hard the model should think.
            stop: texts that end an answer.
            settings: what an adapter adds, by provider: `{"anthropic": {...}}`.
            context: sections `(ctx) -> text | None`, shown as runtime context when they change.
            output: the shape of the answer (a Struct, dataclass or TypedDict, or a JSON schema); a turn completes only with one.
            deps: the class of `ctx.deps` that the tools expect; checked when a System opens.
            formerly: old names of this definition.

        Raises:
            UsageError: something cannot be; the text says what was probably meant.
        """
        put = object.__setattr__
        put(self, "name", name)
        if unknown:
            refuse_unknown(name, unknown, OPTIONS)
        check_name(name)
        check_model(name, model)
        put(self, "model", model)
        put(self, "system", check_system(name, system))
        put(self, "toolbox", make_toolbox(name, tools))
        put(self, "tools", tuple(self.toolbox.values()))
        put(self, "plugins", None if plugins is None else check_plugins(plugins, where=f"agent {name!r}"))
        put(self, "max_tokens", check_max_tokens(name, max_tokens))
        put(self, "temperature", temperature)
        put(self, "limits", check_limits(name, limits))
        put(self, "recovery", one_of(name, "recovery", recovery, ("continue", "end")))
        put(self, "after_error", one_of(name, "after_error", after_error, ("park", "continue")))
        put(self, "effort", effort)
        put(self, "stop", None if stop is None else as_texts(name, "stop", stop))
        put(self, "settings", settings)
        put(self, "context", check_context(name, context))
        put(self, "output", output)
        put(self, "typed", make_output(name, output, self.toolbox))
        put(self, "deps", deps)
        put(self, "formerly", as_texts(name, "formerly", formerly))

    @property
    def sampling(self) -> Settings:
        """The agent's own settings, as the seed of a turn's first request."""
        extra = None if self.settings is None else dict(self.settings)
        return Settings(self.temperature, self.max_tokens, self.stop, self.effort, extra)

    def replace(self, **changes: Any) -> Agent[Deps, Out]:
        """A copy with these options changed.

        Raises:
            UsageError: an option does not exist, or its value cannot be.
        """
        return Agent(**{**{option: getattr(self, option) for option in OPTIONS}, **changes})

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise UsageError(f"agent {self.name!r} is frozen; agent.replace({name}=...) makes a changed copy")

    def __delattr__(self, name: str) -> NoReturn:
        raise UsageError(f"agent {self.name!r} is frozen; nothing of it can be removed")

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, ({option: getattr(self, option) for option in OPTIONS},)

    def __repr__(self) -> str:
        shown = [repr(self.name)]
        for option, default in OPTIONS.items():
            value = getattr(self, option)
            if option != "name" and value != default:
                shown.append(f"{option}={_short(option, value)}")
        return f"Agent({', '.join(shown)})"


OPTIONS: Mapping[str, Any] = {
    "name": None,
    "model": None,
    "system": "",
    "tools": (),
    "plugins": None,
    "max_tokens": None,
    "temperature": None,
    "limits": DEFAULT_LIMITS,
    "recovery": "continue",
    "after_error": "park",
    "effort": None,
    "stop": None,
    "settings": None,
    "context": (),
    "output": None,
    "deps": None,
    "formerly": (),
}
"""Every option of an Agent with its default."""


def _rebuild(options: dict[str, Any]) -> Agent[Any, Any]:
    return Agent(**options)


def _short(option: str, value: Any) -> str:
    if option == "tools":
        return f"[{', '.join(tool.name for tool in value)}]"
    if isinstance(value, type):
        return value.__name__
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
