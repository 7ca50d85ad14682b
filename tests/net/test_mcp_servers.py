"""McpServer against a server in memory: its tools in every step, and what each of its failures costs."""

from __future__ import annotations

import base64
from typing import Any

import mcp_types as types
import pytest
import trio
from mcp_world import Shop, Wire, call, results, shop_agent, text
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard import Agent, System, tool
from callboard.actors.testing import Crash, Reply, ScriptedModel, every_crash
from callboard.net.mcp import McpServer
from callboard.net.mcp.connection import pauses_between
from callboard.storage import Request, UsageError
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.messages import Image, TextBlock

READS = types.ToolAnnotations(read_only_hint=True)


async def hang(arguments: dict[str, Any]) -> Any:
    await trio.sleep_forever()


def offered(agent: Agent[Any, Any], number: int = -1) -> dict[str, Any]:
    """The tools of a request, by name."""
    model: Any = agent.model
    request: Request = model.requests[number]
    return {tool.name: tool for tool in request.tools}


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


# -- failures


async def test_a_call_that_hangs_is_one_error_and_a_server_that_still_answers_is_left_alone(autojump_clock: MockClock) -> None:
    wire = Wire(Shop().add("hang", hang).add("look", "seen"))
    agent = shop_agent([call("hang"), call("look", "c2"), Reply.text("ok")], wire, timeout=3)
    async with System.open(":memory:", agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        await ref.ask("go")
        assert [r.error for r in await results(ref)] == ["TIMEOUT", None]
        await trio.sleep(100)
    assert wire.dialled == 1


async def test_a_server_that_hangs_as_a_whole_is_restarted(autojump_clock: MockClock) -> None:
    wire = Wire(Shop().add("hang", hang).add("look", "seen"))

    async def hang_whole(arguments: dict[str, Any]) -> Any:
        wire.shop.tools_are_mute = True  # type: ignore[attr-defined]
        await trio.sleep_forever()

    wire.shop.bodies["hang"] = hang_whole
    server = wire.shop.server

    def mute() -> Any:
        made = server()

        async def list_tools(ctx: Any, params: Any) -> Any:
            if getattr(wire.shop, "tools_are_mute", False):
                await trio.sleep_forever()
            return types.ListToolsResult(tools=list(wire.shop.tools.values()))

        made.add_request_handler("tools/list", types.PaginatedRequestParams, list_tools)
        wire.shop.tools_are_mute = False  # type: ignore[attr-defined]
        return made

    wire.shop.server = mute  # type: ignore[method-assign]
    agent = shop_agent([call("hang"), call("look", "c2"), Reply.text("ok")], wire, timeout=3, probe_s=2)
    async with System.open(":memory:", agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        await ref.ask("go")
        assert next(r.error for r in await results(ref)) == "TIMEOUT"
        await trio.sleep(10)
        assert wire.dialled == 2
        plugin: Any = agent.plugins
        assert plugin[0].problem == ""


async def cut_in_the_middle(replay: str) -> tuple[Wire, list[Any]]:
    shop = Shop()
    wire = Wire(shop)

    async def once(arguments: dict[str, Any]) -> types.CallToolResult:
        if len(shop.calls) == 1:
            wire.cut()
            await trio.sleep_forever()
        return text("done")

    shop.add("once", once)
    agent = shop_agent([call("once"), call("once", "c2"), Reply.text("ok")], wire, replay=replay)
    async with System.open(":memory:", agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        assert (await ref.ask("go")).text == "ok"
        return wire, await results(ref)


async def test_a_server_that_dies_in_a_call_costs_one_error_and_comes_back(autojump_clock: MockClock) -> None:
    wire, (first, second) = await cut_in_the_middle("never")
    assert first.error == "MCP_LOST" and "unknown" in first.content[0].text
    assert second.error is None and wire.dialled == 2 and len(wire.shop.calls) == 2


async def test_a_call_that_may_be_made_again_is_made_again(autojump_clock: MockClock) -> None:
    wire, (first, second) = await cut_in_the_middle("safe")
    assert (first.error, second.error, wire.dialled, len(wire.shop.calls)) == (None, None, 2, 3)


async def test_a_server_that_is_not_there_costs_a_bounded_wait_and_no_turn(autojump_clock: MockClock) -> None:
    wire = Wire(Shop().add("look", "seen"))
    wire.closed = True
    agent = shop_agent(["no tools", call("look"), "now"], wire, start_s=7, wait_s=5)
    async with System.open(":memory:", agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        began = trio.current_time()
        assert (await ref.ask("go")).text == "no tools" and 7 <= trio.current_time() - began < 8
        assert not offered(agent)
        plugin: Any = agent.plugins
        assert plugin[0].problem == "OSError: nobody there"
        wire.closed = False
        await trio.sleep(60)
        assert (await ref.ask("again")).text == "now" and wire.dialled > 4


async def test_while_a_server_is_down_its_tools_stay_on_offer(autojump_clock: MockClock) -> None:
    wire = Wire(Shop().add("look", "seen"))
    agent = shop_agent(["before", call("look"), "gone", call("look", "c2"), "back"], wire, wait_s=5)
    async with System.open(":memory:", agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        await ref.ask("go")
        wire.closed = True
        wire.cut()
        assert (await ref.ask("go")).text == "gone" and set(offered(agent)) == {"shop__look"}
        wire.closed = False
        await trio.sleep(60)
        await ref.ask("go")
        down, up = await results(ref)
        assert (down.error, up.error) == ("MCP_UNAVAILABLE", None)
        assert "'shop' is not there: OSError: nobody there" in down.content[0].text


async def test_one_that_takes_everything_and_answers_nothing_is_given_up(autojump_clock: MockClock) -> None:
    wire = Wire(Shop())
    wire.mute = True
    agent = shop_agent(["no tools"], wire, start_s=5)
    async with System.open(":memory:", agents=[agent]) as system:
        assert (await (await system.spawn(agent, id="a")).ask("go")).text == "no tools"
        await trio.sleep(60)
        plugin: Any = agent.plugins
        assert plugin[0].problem == "NoAnswer: it did not answer in 5 s" and wire.dialled > 4


def test_pauses_double_up_to_the_longest() -> None:
    pauses = pauses_between()
    assert [next(pauses) for _ in range(9)] == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


# -- restarts


async def test_after_a_restart_without_the_server_the_turn_goes_on_with_the_tools_it_had(autojump_clock: MockClock) -> None:
    store, wire = MemoryStore(), Wire(Shop().add("look", hang, annotations=READS))
    first = shop_agent([call("look")], wire)
    with trio.move_on_after(5):
        async with System.open(store, agents=[first], grace=0) as system:
            await (await system.spawn(first, id="a")).ask("go", message_id="m")
    wire.closed = True
    second = shop_agent(["without"], wire, start_s=5, wait_s=5)
    async with System.open(store, agents=[second]) as system:
        ref = await system.get("a")
        assert (await ref.outcome("m")).text == "without"
        assert set(offered(second)) == {"shop__look"}
        (result,) = await results(ref)
        assert result.error == "MCP_UNAVAILABLE"


async def test_a_server_that_comes_up_in_time_answers_the_call_that_a_restart_cut(autojump_clock: MockClock) -> None:
    store, wire = MemoryStore(), Wire(Shop().add("look", hang, annotations=READS))
    first = shop_agent([call("look")], wire)
    with trio.move_on_after(5):
        async with System.open(store, agents=[first], grace=0) as system:
            await (await system.spawn(first, id="a")).ask("go", message_id="m")
    wire.shop.add("look", "seen", annotations=READS)
    wire.closed = True
    second = shop_agent(["found"], wire)
    async with System.open(store, agents=[second]) as system:
        ref = await system.get("a")
        await trio.sleep(3)
        wire.closed = False
        assert (await ref.outcome("m")).text == "found"
        (result,) = await results(ref)
        assert result.content == (TextBlock("seen"),)


async def test_whatever_commit_the_process_dies_after_a_payment_is_made_once_at_most() -> None:
    paid: list[Wire] = []

    async def scenario(store: Any) -> Any:
        wire = Wire(Shop().add("pay", "paid"))
        paid.append(wire)

        def model(request: Request) -> Reply:
            return Reply.text("ok") if request.messages[-1].role == "tool" else call("pay")

        agent = shop_agent(model, wire)
        async with System.open(store, agents=[agent]) as system:
            ref = await system.spawn(agent, id="a")
            await ref.ask("pay", message_id="m")
            return [result.error for result in await results(ref)]

    async for crash in every_crash(scenario):
        check_paid_once(crash, paid)
        paid.clear()


def check_paid_once(crash: Crash[list[str | None]], paid: list[Wire]) -> None:
    payments = sum(len(wire.shop.calls) for wire in paid)
    assert payments <= 1
    assert crash.result in ([None], ["OUTCOME_UNKNOWN"])
    assert crash.result == ["OUTCOME_UNKNOWN"] or payments == 1


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
