"""`@tool`: what it makes of a function, and the mistakes it guesses."""

from __future__ import annotations

import copy
import inspect
import pickle
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, assert_type, cast

import pytest
import trio
from msgspec import Struct

from callboard.actors.testing.contexts import tool_context
from callboard.actors.tools import ToolContext, ToolOutput, tool
from callboard.storage.errors import ToolError, UsageError
from callboard.storage.messages import Image, TextBlock, ToolSpec


class Hotel(Struct):
    name: str
    stars: int = 3


@tool
async def greet(name: str, times: int = 1) -> str:
    """Say hello."""
    return "hello " * times + name


def text_of(value: ToolOutput) -> str:
    (block,) = value.content
    assert isinstance(block, TextBlock)
    return block.text


async def test_p05_a_tool_is_still_the_function() -> None:
    assert await greet("Ann", times=2) == "hello hello Ann"
    assert inspect.signature(greet) == inspect.signature(greet.function)
    assert (greet.__name__, greet.__doc__, greet.__module__) == ("greet", "Say hello.", __name__)


async def test_p05_a_tool_is_tested_alone_with_a_context() -> None:
    @tool(replay="safe")
    async def lookup(ctx: ToolContext[dict[str, str]], city: str) -> str:
        return ctx.deps[city]

    assert await lookup(tool_context(deps={"Oslo": "rain"}), "Oslo") == "rain"


def test_a_tool_travels_by_its_name() -> None:
    assert pickle.loads(pickle.dumps(greet)) is greet
    assert copy.deepcopy([greet]) == [greet]


async def test_p12_type_checkers_see_the_functions_own_signature() -> None:
    assert_type(await greet("Ann"), str)
    with pytest.raises(TypeError):
        await greet(nam="Ann")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def test_the_defaults_are_the_careful_ones() -> None:
    assert (greet.mode, greet.replay, greet.timeout, greet.approval, greet.loop) == ("exclusive", "never", None, None, None)
    assert (greet.name, greet.description) == ("greet", "Say hello.")
    assert greet.spec == ToolSpec("greet", "Say hello.", greet.schema)
    assert greet.spec is greet.spec


def test_options_are_kept() -> None:
    @tool(name="find-it", description="Find.", mode="parallel", replay="ask", timeout=0, approval="Really?")
    async def find() -> None:
        """Not shown."""

    assert (find.name, find.description, find.mode, find.replay, find.timeout, find.approval) == (
        "find-it",
        "Find.",
        "parallel",
        "ask",
        0,
        "Really?",
    )
    assert repr(find) == "<Tool 'find-it' parallel replay=ask timeout=0 asks>"


def test_p04_an_approval_may_be_a_function() -> None:
    @tool(approval=lambda ctx, call: "ask" if call.args["cents"] > 5000 else None)
    async def refund(cents: int) -> None: ...

    assert callable(refund.approval)


class NoTool:
    pass


async def stream() -> AsyncIterator[str]:
    yield "a"


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (NoTool, "NoTool is a class; a tool is a function"),
        (lambda: None, "a lambda has no name"),
        (stream, "stream is a generator"),
        (greet, "'greet' is a tool already"),
        ("greet", "@tool(name='greet')"),
        (3, "3 is not a function"),
        (staticmethod(len), "@tool stands above @staticmethod"),
    ],
)
def test_what_is_no_function_is_refused_with_a_guess(function: Any, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        tool(function)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"name": "find it"}, "providers refuse the tool name 'find it'"),
        ({"name": "x" * 65}, "1 to 64"),
        ({"name": "ok\n"}, "providers refuse"),
        ({"mode": "paralel"}, "mode='paralel' of tool 'work' does not exist; did you mean 'parallel'?"),
        ({"mode": "zzz"}, "choose one of 'exclusive', 'parallel'"),
        ({"replay": "save"}, "did you mean 'safe'?"),
        ({"loop": "asincio"}, "did you mean 'asyncio'?"),
        ({"timeout": -1}, "timeout=-1"),
        ({"timeout": float("nan")}, "timeout=nan"),
        ({"timeout": "30"}, "timeout='30'"),
        ({"approval": ""}, "neither a question nor a function"),
        ({"approval": True}, "neither a question nor a function"),
    ],
)
def test_misspelled_options_are_refused_with_a_guess(options: dict[str, Any], says: str) -> None:
    async def work() -> None: ...

    with pytest.raises(UsageError) as caught:
        tool(**options)(work)
    assert says in str(caught.value)


def test_the_asyncio_loop_is_for_async_functions() -> None:
    def work() -> None: ...

    with pytest.raises(UsageError, match="plain def"):
        tool(loop="asyncio")(work)


# -- running


async def test_c131_a_tool_works_with_and_without_a_context() -> None:
    @tool
    async def with_context(ctx: ToolContext, city: str) -> str:
        return f"{ctx.call_id} {city}"

    @tool
    async def without(city: str) -> str:
        return city

    context = tool_context(call_id="c7")
    assert await with_context.run(context, {"city": "Oslo"}) == "c7 Oslo"
    assert await without.run(context, {"city": "Oslo"}) == "Oslo"


async def test_p11_a_plain_def_runs_in_a_worker_thread() -> None:
    @tool
    def parse(path: str) -> str:
        assert threading.current_thread() is not threading.main_thread()
        return path.upper()

    assert await parse.run(tool_context(), {"path": "a"}) == "A"


async def test_a_plain_def_that_returns_an_awaitable_is_awaited() -> None:
    def traced(function: Callable[[str], Awaitable[str]]) -> Callable[[str], Awaitable[str]]:
        def wrapper(city: str) -> Awaitable[str]:
            return function(city)

        return wrapper

    async def weather(city: str) -> str:
        await trio.lowlevel.checkpoint()
        return f"sun in {city}"

    assert await tool(name="weather")(traced(weather)).run(tool_context(), {"city": "Oslo"}) == "sun in Oslo"


async def test_p11_asyncio_tools_run_on_the_loop_or_say_that_there_is_none() -> None:
    ran: list[str] = []

    @tool(loop="asyncio", replay="safe")
    async def orders(ctx: ToolContext, customer: str) -> str:
        return f"orders of {customer}"

    async def on_loop(call: Callable[[], Awaitable[Any]]) -> Any:
        ran.append("loop")
        return await call()

    assert await orders.run(tool_context(loop=on_loop), {"customer": "Ann"}) == "orders of Ann"
    assert ran == ["loop"]
    with pytest.raises(ToolError, match=r"only where the system was opened by callboard\.net\.aio"):
        await orders.run(tool_context(), {"customer": "Ann"})


# -- results


def test_p12_a_struct_becomes_json() -> None:
    @tool
    async def hotels(city: str) -> list[Hotel]: ...  # type: ignore[empty-body]

    assert text_of(hotels.encode([Hotel("Grand", 5)])) == '[{"name":"Grand","stars":5}]'


def test_c124_a_text_stays_as_it_is() -> None:
    assert text_of(greet.encode("Error: none")) == "Error: none"


def test_a_tool_output_keeps_what_it_says() -> None:
    image = Image("image/png", url="https://x.test/a.png")
    value = greet.encode(ToolOutput(image, concludes=True, context=("more",), meta={"rows": 3}))
    assert value == ToolOutput((image,), True, ("more",), {"rows": 3})


def test_c120_a_result_that_breaks_the_promise_of_the_signature_is_invalid_output() -> None:
    @tool
    async def hotels() -> list[Hotel]: ...  # type: ignore[empty-body]

    for function, value in ((greet, None), (greet, 3), (hotels, [{"name": "Grand", "stars": "five"}]), (hotels, "none")):
        with pytest.raises(ToolError) as caught:
            function.encode(value)
        assert caught.value.code == "INVALID_OUTPUT"
        assert str(caught.value).startswith(f"{function.name} returned something else than its signature says")


def test_a_promise_that_cannot_be_checked_is_not() -> None:
    class Row(dict[str, int]):
        pass

    async def unknown() -> Nowhere: ...  # type: ignore[name-defined]  # noqa: F821
    async def silent():  # type: ignore[no-untyped-def]  # noqa: ANN202
        ...
    @tool
    async def rows() -> list[Row]: ...  # type: ignore[empty-body]
    @tool
    async def picture() -> Image: ...  # type: ignore[empty-body]

    assert text_of(tool(cast("Any", unknown)).encode(3)) == "3"
    assert text_of(tool(cast("Any", silent)).encode(None)) == "null"
    assert text_of(rows.encode([Row(a=1)])) == '[{"a":1}]'
    assert picture.encode(Image("image/png", blob="d")).content == (Image("image/png", blob="d"),)
