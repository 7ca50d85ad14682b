"""McpServer against a server in memory: its tools in every step, their names, their results."""

from __future__ import annotations

import base64
from typing import Any

import mcp_types as types
import pytest
import trio
from mcp_world import Shop, Wire, call, offered, results, shop_agent, text
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard import Agent, System, tool
from callboard.actors.testing import Reply, ScriptedModel
from callboard.net.mcp import McpServer
from callboard.storage import UsageError
from callboard.storage.messages import Image, TextBlock

READS = types.ToolAnnotations(read_only_hint=True)


# -- tools and results


async def test_a_server_s_tools_are_offered_and_called(autojump_clock: MockClock) -> None:
    async def add(arguments: dict[str, Any]) -> types.CallToolResult:
        return text(str(arguments["a"] + arguments["b"]))

    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
    wire = Wire(Shop().add("add", add, schema, description="Add two numbers."))
    agent = shop_agent([call("add", a=1, b=2), call("add", "c2", a=1), "three"], wire)
    async with System.open(":memory:", agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        assert (await ref.ask("1 + 2")).text == "three"
        spec = offered(agent)["shop__add"]
        assert (spec.description, spec.schema) == ("Add two numbers.", schema)
        good, bad = await results(ref)
        assert good.content == (TextBlock("3"),)
        assert bad.error == "INVALID_ARGUMENTS" and "missing required field `b`" in bad.content[0].text
    assert wire.shop.calls == [("add", {"a": 1, "b": 2})] and wire.dialled == 1


async def test_a_picture_is_kept_once_and_an_error_is_one(autojump_clock: MockClock) -> None:
    async def draw(arguments: dict[str, Any]) -> types.CallToolResult:
        data = base64.b64encode(b"picture").decode()
        return types.CallToolResult(content=[types.ImageContent(type="image", data=data, mime_type="image/png")])

    async def fail(arguments: dict[str, Any]) -> types.CallToolResult:
        return text("out of ink", is_error=True)

    wire = Wire(Shop().add("draw", draw).add("fail", fail))
    agent = shop_agent([call("draw"), call("fail", "c2"), "ok"], wire)
    async with System.open(":memory:", agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        await ref.ask("draw")
        picture, failure = await results(ref)
        (image,) = picture.content
        assert isinstance(image, Image) and image.data is None
        assert await system.store.blob(str(image.blob)) == b"picture"
        assert (failure.error, failure.content[0].text) == ("MCP_ERROR", "out of ink")


async def test_a_huge_result_is_a_preview_and_a_blob(autojump_clock: MockClock) -> None:
    wire = Wire(Shop().add("read", "x" * 5_000_000))
    agent = shop_agent([call("read"), "ok"], wire)
    async with System.open(":memory:", agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        await ref.ask("read")
        (result,) = await results(ref)
        assert len(result.content[0].text) < 10_000
        assert len(await system.store.blob(str(result.content[1].blob))) == 5_000_000


async def test_names_that_others_have_are_numbered(autojump_clock: MockClock) -> None:
    @tool(name="shop__buy")
    async def buy() -> str:
        """Buy."""
        return "own"

    wires = [Wire(Shop().add("buy", "first")), Wire(Shop().add("buy", "second"))]
    plugins = [McpServer("shop", wire, protocol="legacy") for wire in wires]
    calls = Reply.tools(("c1", "shop__buy", {}), ("c2", "shop__buy_2", {}), ("c3", "shop__buy_3", {}))
    agent = Agent("buyer", model=ScriptedModel([calls, Reply.text("ok")]), plugins=plugins, tools=[buy])
    async with System.open(":memory:", agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        await ref.ask("buy")
        assert [result.content[0].text for result in await results(ref)] == ["own", "first", "second"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"shop__look": "safe", "shop__pay": "never"}),
        ({"replay": "ask"}, {"shop__look": "ask", "shop__pay": "ask"}),
        ({"replay": {"pay": "safe"}}, {"shop__look": "safe", "shop__pay": "safe"}),
        ({"only": ["pay"]}, {"shop__pay": "never"}),
    ],
)
async def test_what_a_crash_means_to_a_call_is_for_the_user_to_say(
    options: Any, expected: dict[str, str], autojump_clock: MockClock
) -> None:
    wire = Wire(Shop().add("look", "seen", annotations=READS).add("pay", "paid"))
    calls = Reply.tools(*[(f"c{n}", name, dict[str, Any]()) for n, name in enumerate(expected)])
    agent = shop_agent([calls, Reply.text("ok")], wire, **options)
    async with System.open(":memory:", agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        await ref.ask("go")
        events: list[Any] = [record.event async for record in ref.read(types={"tool/call"})]
        assert {event.name: event.replay for event in events} == expected and set(offered(agent)) == set(expected)


async def test_approval_is_asked_before_the_server_is() -> None:
    wire = Wire(Shop().add("pay", "paid"))
    agent = shop_agent([call("pay"), Reply.text("ok")], wire, approval="Really?")
    async with System.open(":memory:", agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        receipt = await ref.followup("go")
        await wait_all_tasks_blocked()
        (question,) = [question async for question in system.approvals()]
        assert question.question == "Really?" and not wire.shop.calls
        await system.answer(question.id, "allow", by="ann")
        assert (await ref.outcome(receipt.message_id)).text == "ok" and wire.shop.calls


async def test_tools_that_change_are_others_in_the_next_step(autojump_clock: MockClock) -> None:
    shop = Shop()

    async def restock(arguments: dict[str, Any]) -> types.CallToolResult:
        shop.add("new", "fresh")
        del shop.tools["old"]
        await shop.tell_of_changes()
        return text("restocked")

    wire = Wire(shop.add("old", "stale").add("restock", restock))

    @tool(replay="safe")
    async def rest() -> str:
        """Let time go by."""
        await trio.sleep(1)
        return ""

    script = [call("restock"), Reply.tools(("c2", "rest", {})), call("old", "c3"), call("new", "c4"), Reply.text("ok")]
    agent = shop_agent(script, wire).replace(tools=[rest])
    async with System.open(":memory:", agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        await ref.ask("go")
        assert set(offered(agent, 0)) == {"rest", "shop__old", "shop__restock"}
        assert set(offered(agent)) == {"rest", "shop__new", "shop__restock"}
        assert [r.error for r in await results(ref)] == [None, None, "UNKNOWN_TOOL", None]
    assert wire.dialled == 1


async def test_progress_is_noted_now_and_then(autojump_clock: MockClock) -> None:
    shop = Shop()

    async def work(arguments: dict[str, Any]) -> types.CallToolResult:
        return text("done")

    server = shop.add("work", work).server

    def with_progress() -> Any:
        made = server()

        async def call_tool(ctx: Any, params: Any) -> Any:
            for number in range(40):
                await ctx.session.report_progress(number, 40, f"step {number}")
                await trio.sleep(0.1)
            return text("done")

        made.add_request_handler("tools/call", types.CallToolRequestParams, call_tool)
        return made

    shop.server = with_progress  # type: ignore[method-assign]
    agent = shop_agent([call("work"), Reply.text("ok")], Wire(shop))
    async with System.open(":memory:", agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        await ref.ask("go")
        events: list[Any] = [record.event async for record in ref.read(types={"note"})]
        notes: list[str] = [event.data["text"] for event in events]
        assert notes[0] == "step 0" and 3 <= len(notes) <= 5


# -- using it wrong


async def test_mistakes_are_named() -> None:
    with pytest.raises(UsageError, match="needs a name"):
        McpServer("", Wire(Shop()))
    with pytest.raises(UsageError, match="has no command"):
        McpServer.stdio("s")
    with pytest.raises(UsageError, match="begins with http"):
        McpServer.http("s", "localhost:80")
    plugin = McpServer("s", Wire(Shop()))
    assert plugin.problem == "the system is not open" and repr(plugin) == "McpServer('s')"
    async with System.open(":memory:", plugins=[plugin]):
        with pytest.raises(UsageError, match="in an open system already"):
            async with System.open(":memory:", plugins=[plugin]):
                raise AssertionError("opened")
