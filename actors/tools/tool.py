"""`@tool`: a function that a model may call.

A Tool is the function and what the runtime has to know of it: the schema of its arguments, whether it may run beside others
(`mode`), what becomes of it after a crash (`replay`), how long it may take, whom to ask. It stays callable as the plain
function, with its own signature for type checkers, so that code and tests use it without any runtime. Everything that can be
wrong with it is found when it is made.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, Literal, ParamSpec, TypeVar, cast, get_args, overload

import msgspec
import trio

from ...storage.errors import ToolError, UsageError
from ...storage.events.dialogue import Replay
from ...storage.messages import ToolSpec
from .context import ToolContext
from .docstring import split_docstring
from .output import ResultBlock, ToolOutput, check_value, to_content
from .schema import Arguments, Schema, SchemaArguments, SignatureArguments, result_type
from .threads import run_in_thread

P = ParamSpec("P")
R = TypeVar("R")

Mode = Literal["exclusive", "parallel"]
Loop = Literal["asyncio"]
Approval = str | Callable[[Any, Any], Any]
"""A question, or `(ctx, call) -> Ask(question, expires_s=) | None`."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Tool(Generic[P, R]):
    """A function that a model may call; made by `@tool`, or by `tool_from_schema` where the schema comes from elsewhere."""

    __name__: str
    __qualname__: str
    name: str
    description: str
    """What the model reads about it: the docstring's paragraphs."""
    schema: Schema
    """The JSON schema of its arguments."""
    mode: Mode
    """`exclusive` (the default) runs alone, `parallel` beside others of its kind."""
    replay: Replay
    """After a crash a started body is not run again (`never`), run again (`safe`), or a person is asked (`ask`)."""
    timeout: float | None
    """Seconds; None means `Limits.tool_timeout`."""
    approval: Approval | None
    loop: Loop | None
    function: Callable[P, R]
    """The plain function."""
    spec: ToolSpec
    """The tool as requests show it to the model: one object, so that headers share it."""

    def __init__(
        self,
        function: Callable[P, R],
        arguments: Arguments,
        *,
        name: str,
        description: str,
        mode: Mode = "exclusive",
        replay: Replay = "never",
        timeout: float | None = None,
        approval: Approval | None = None,
        loop: Loop | None = None,
        result: Any = Any,
    ) -> None:
        _check_options(name, mode=mode, replay=replay, timeout=timeout, approval=approval, loop=loop)
        functools.update_wrapper(self, function)
        self.function, self._arguments = function, arguments
        self.name, self.description, self.schema = name, description, arguments.schema
        self.mode, self.replay, self.timeout, self.approval, self.loop = mode, replay, timeout, approval, loop
        self.spec = ToolSpec(name, description, arguments.schema)
        self._result: msgspec.json.Decoder[Any] | None = None if result is Any else msgspec.json.Decoder(result)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The plain function itself."""
        return self.function(*args, **kwargs)

    def __reduce__(self) -> str:
        # Pickled and copied as what it is: the global of its name.
        return self.__qualname__

    def __repr__(self) -> str:
        parts = [repr(self.name), self.mode, f"replay={self.replay}"]
        parts += [f"{key}={value!r}" for key in ("timeout", "loop") if (value := getattr(self, key)) is not None]
        return f"<Tool {' '.join(parts)}{' asks' if self.approval is not None else ''}>"

    def decode(self, arguments: str) -> dict[str, Any]:
        """Name → value from the model's own text, defaults filled in; an empty text means no arguments.

        Raises:
            ToolError: INVALID_ARGUMENTS; its text tells the model what to do next.
        """
        return self._arguments.decode(arguments)

    @trio.lowlevel.disable_ki_protection  # a tool in an endless loop must not keep Ctrl-C from its program
    async def run(self, context: ToolContext[Any], arguments: Mapping[str, Any]) -> Any:
        """The body with decoded arguments: in this task, or, for a plain `def`, in a worker thread."""
        positional, keywords = self._arguments.bind(context, arguments)
        call = cast("Callable[[], Any]", functools.partial(self.function, *positional, **keywords))
        if self.loop is not None:
            return await self._run_on_loop(context, call)
        result = call() if inspect.iscoroutinefunction(inspect.unwrap(self.function)) else await run_in_thread(call)
        return await result if inspect.isawaitable(result) else result

    async def _run_on_loop(self, context: ToolContext[Any], call: Callable[[], Awaitable[Any]]) -> Any:
        if context.loop is None:
            raise ToolError(
                f"{self.name} runs on an asyncio loop, and there is none here: it works only where the system was opened "
                "by callboard.net.aio. Go on without it."
            )
        return await context.loop(call)

    def encode(self, value: Any) -> ToolOutput:
        """What the body returned, with its content as blocks.

        Raises:
            ToolError: INVALID_OUTPUT, if it cannot be stored or is not what the signature says.
        """
        if isinstance(value, ToolOutput):
            return msgspec.structs.replace(value, content=to_content(value.content, tool=self.name))
        content = to_content(value, tool=self.name)
        if self._result is not None and not _is_blocks(value):
            check_value(value, content, self._result, tool=self.name)
        return ToolOutput(content)


def _is_blocks(value: Any) -> bool:
    return isinstance(value, ResultBlock) or (
        isinstance(value, list | tuple) and any(isinstance(v, ResultBlock) for v in cast("list[Any]", value))
    )


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    mode: Mode = "exclusive",
    replay: Replay = "never",
    timeout: float | None = None,
    approval: Approval | None = None,
    loop: Loop | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    mode: Mode = "exclusive",
    replay: Replay = "never",
    timeout: float | None = None,
    approval: Approval | None = None,
    loop: Loop | None = None,
) -> Any:
    """Make a tool of a function; its signature gives the schema, its docstring the description.

    Args:
        function: given by a bare `@tool`.
        name: what the model calls it; the function's name by default.
        description: instead of the docstring.
        mode: "parallel" lets calls of one answer run side by side.
        replay: what becomes of a call that a crash cut: "never" run again, "safe" to run again, or "ask".
        timeout: seconds; None means `Limits.tool_timeout`.
        approval: a question put to a person before each call, or `(ctx, call) -> Ask | None`.
        loop: "asyncio" runs it on the loop that opened the system (`net.aio` only).

    Raises:
        UsageError: something about it could never work; the text guesses the mistake.
    """
    # Types made inside a function (as tests do) are visible only where the decorator stands, not from the function's module.
    frame = inspect.currentframe()
    namespace = dict(frame.f_back.f_locals) if frame is not None and frame.f_back is not None else {}

    def make(function: Callable[..., Any]) -> Tool[..., Any]:
        _check_function(function)
        own_name = name or function.__name__
        text = split_docstring(function.__doc__)[0] if description is None else description
        options: dict[str, Any] = {"mode": mode, "replay": replay, "timeout": timeout, "approval": approval, "loop": loop}
        if loop is not None and not inspect.iscoroutinefunction(function):
            raise UsageError(f"tool {own_name!r} is a plain def, which runs in a worker thread; loop= is for async def")
        _check_options(own_name, **options)
        arguments = SignatureArguments(function, own_name, namespace=namespace)
        result = result_type(function, own_name, namespace=namespace)
        return Tool(function, arguments, name=own_name, description=text, result=result, **options)

    return make if function is None else make(function)


def tool_from_schema(
    function: Callable[[ToolContext[Any], dict[str, Any]], Awaitable[Any]],
    *,
    name: str,
    description: str,
    schema: Schema,
    mode: Mode = "exclusive",
    replay: Replay = "never",
    timeout: float | None = None,
    approval: Approval | None = None,
) -> Tool[[ToolContext[Any], dict[str, Any]], Awaitable[Any]]:
    """A tool whose schema comes from elsewhere (MCP, delegation); the function gets the context and a dict of arguments.

    Raises:
        UsageError: as `tool`.
    """
    arguments = SchemaArguments(schema, name)
    return Tool(
        function, arguments, name=name, description=description, mode=mode, replay=replay, timeout=timeout, approval=approval
    )


# -- guessing mistakes


def _check_function(function: Any) -> None:
    if isinstance(function, str):
        raise UsageError(f"tool() takes its options by name: @tool(name={function!r})")
    if isinstance(function, Tool):
        raise UsageError(f"{cast('Any', function).name!r} is a tool already; remove one @tool")
    if isinstance(function, type):
        raise UsageError(f"{function.__name__} is a class; a tool is a function, or a bound method: tool(instance.method)")
    if isinstance(function, classmethod | staticmethod):
        raise UsageError("@tool stands above @staticmethod or @classmethod; make the tool from outside the class")
    if not inspect.isroutine(function):
        raise UsageError(f"{function!r} is not a function; write `async def name(...)` around it")
    if function.__name__ == "<lambda>":
        raise UsageError("a lambda has no name, types or docstring for the model; write `async def name(...)`")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(f"{function.__name__} is a generator; a tool returns one result: collect it and return it")


def _check_options(name: str, *, mode: Any, replay: Any, timeout: Any, approval: Any, loop: Any) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(f"providers refuse the tool name {name!r}; pass name= with 1 to 64 of letters, digits, _ and -")
    _check_choice(name, "mode", mode, get_args(Mode))
    _check_choice(name, "replay", replay, get_args(Replay))
    if loop is not None:
        _check_choice(name, "loop", loop, get_args(Loop))
    if timeout is not None and (not isinstance(timeout, int | float) or isinstance(timeout, bool) or not timeout >= 0):
        raise UsageError(f"timeout={timeout!r} of tool {name!r} is no number of seconds; None means Limits.tool_timeout")
    if approval is not None and not callable(approval) and not (isinstance(approval, str) and approval):
        raise UsageError(f"approval={approval!r} of tool {name!r} is neither a question nor a function (ctx, call) -> Ask | None")


def _check_choice(name: str, option: str, value: Any, choices: tuple[str, ...]) -> None:
    if value in choices:
        return
    close = difflib.get_close_matches(str(value), choices, 1)
    guess = f"did you mean {close[0]!r}?" if close else "choose one of " + ", ".join(map(repr, choices))
    raise UsageError(f"{option}={value!r} of tool {name!r} does not exist; {guess}")
