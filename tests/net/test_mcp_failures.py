"""What a server does wrong: it hangs, dies, is not there; and what a crash of our own process makes of its calls."""

from __future__ import annotations

from typing import Any

import mcp_types as types
import pytest
import trio
from mcp.server.lowlevel import Server
from mcp_world import Shop, Wire, call, offered, results, shop_agent, text
from trio.testing import MockClock

from callboard import System
from callboard.actors.testing import Crash, Reply, every_crash
from callboard.net.mcp.connection import Connection, pauses_between
from callboard.storage import Request
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.messages import TextBlock

READS = types.ToolAnnotations(read_only_hint=True)


async def hang(arguments: dict[str, Any]) -> Any:
    await trio.sleep_forever()


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


async def test_a_client_that_is_dropped_is_given_to_nobody_any_more(autojump_clock: MockClock) -> None:
    wire = Wire(Shop().add("look", "seen"))
    connection = Connection("shop", wire, lambda tools: None, start_s=5, probe_s=5, mode="legacy")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.run)
        client = await connection.ready(5)
        connection.drop(client)
        assert connection.client is None, "at once, before the task that keeps it has run"
        assert await connection.ready(5) not in (None, client) and connection.connected == 2
        connection.drop(client)  # an old one is nobody's business
        assert connection.client is not None and "up" in repr(connection)
        nursery.cancel_scope.cancel()


class Endless(Shop):
    """A shop whose list has always another page."""

    pages = 0

    def server(self) -> Server[Any]:
        async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
            self.pages += 1
            tools = [types.Tool(name=f"t{self.pages}-{n}", input_schema={"type": "object"}) for n in range(500)]
            return types.ListToolsResult(tools=tools, next_cursor="more")

        return Server("endless", on_list_tools=list_tools)


async def test_a_list_that_never_ends_is_read_as_far_as_it_may_be(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    shop = Endless()
    agent = shop_agent(["ok"], Wire(shop))
    async with System.open(":memory:", agents=[agent]) as system:
        assert (await (await system.spawn(agent, id="a")).ask("go")).result() == "ok"
    assert shop.pages == 20 and len(offered(agent)) == 1000
    told = [record.getMessage() for record in caplog.records if "not offered" in record.getMessage()]
    assert len(told) == 11 and told[-1].startswith("8990 more tools")


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
