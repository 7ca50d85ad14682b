"""A person in a chat is asked there, and answers there: once, whatever is killed or sent again."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from helpers import check, events, make, order, records
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors import Agent, Ask, System, tool
from callboard.actors.channels import MemoryChannel
from callboard.actors.plugins import Commands
from callboard.actors.testing import Reply, ScriptedModel, every_crash, trio_wall
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.messages import Request
from callboard.storage.store import Store

CHAT = "irc:a"
OPENED = "put[t](go) TS1 claim(go) SS1.1 U(go) H{initial} X Q1 C* A"
ENDED = "SE SS1.2 Q1 C* A SE TE1{completed} out"


class Shop:
    """Sells what people allow in the chat."""

    def __init__(self, *calls: str, route: Any = None, expires_s: float | None = None, **commands: Any) -> None:
        self.calls, self.sold = calls or ("tea",), list[str]()
        options: dict[str, Any] = {"decisions": True, **commands}
        self.commands = Commands(**options)
        self.route, self.expires_s = route, expires_s

    def agent(self) -> Agent[Any, Any]:
        """Its definition."""

        @tool(mode="parallel", approval=self.ask)
        async def buy(what: str) -> str:
            """Buy."""
            self.sold.append(what)
            return f"bought {what}"

        return make(ScriptedModel(self.says), tools=[buy], plugins=[self.commands])

    def ask(self, ctx: Any, call: Any) -> Ask:
        return Ask(f"Buy {call.args['what']}?", expires_s=self.expires_s, route=self.route or ctx.route)

    def says(self, request: Request) -> Reply:
        results = {id: text for message in request.messages for id, text in message.results.items()}
        if results:
            return Reply.text("; ".join(results.values()))
        return Reply.tools(*((what, "buy", {"what": what}) for what in self.calls))


async def test_the_question_is_said_in_the_chat_and_allowed_there() -> None:
    store, shop = MemoryStore(), Shop()
    async with System.open(store, channels={"irc": (chat := MemoryChannel(shop.agent()))}):
        await chat.say("go", chat="a", sender="ann", id="go")
        assert (await chat.reply(chat="a")).text == "Buy tea?"
        await wait_all_tasks_blocked()
        assert shop.sold == []
        await chat.say("/allow", chat="a", sender="ann", id="word")
        assert [(await chat.reply(chat="a")).text for _ in range(2)] == ["Allowed: Buy tea?", "bought tea"]
        await wait_all_tasks_blocked()
    log = (await order(store, CHAT)).replace(" sent", "")
    assert log == f"{OPENED} asked out cmd cmdres out answered call(tea) res(tea) {ENDED}"
    (answered,) = await events(store, e.ApprovalAnswered, CHAT)
    assert (answered.verdict, answered.by) == ("allow", "ann")
    await check(store)


async def test_refused_the_model_reads_why_and_the_oldest_question_is_answered_first() -> None:
    shop = Shop("tea", "cake")
    async with System.open(":memory:", channels={"irc": (chat := MemoryChannel(shop.agent()))}):
        await chat.say("go", chat="a")
        assert [(await chat.reply(chat="a")).text for _ in range(2)] == ["Buy tea?", "Buy cake?"]
        await chat.say("/deny too strong", chat="a")
        assert (await chat.reply(chat="a")).text == "Refused: Buy tea?"
        await chat.say("/allow", chat="a")
        assert (await chat.reply(chat="a")).text == "Allowed: Buy cake?"
        assert (await chat.reply(chat="a")).text == "A person refused this call: too strong.; bought cake"
        await chat.say("/allow", chat="a")
        assert (await chat.reply(chat="a")).text == "Nothing waits for your word."
    assert shop.sold == ["cake"]


async def test_only_who_may_decides() -> None:
    shop = Shop(authority=["ann"])
    async with System.open(":memory:", channels={"irc": (chat := MemoryChannel(shop.agent()))}, grace=0):
        await chat.say("go", chat="a", sender="bob")
        await chat.reply(chat="a")
        await chat.say("/allow", chat="a", sender="bob")
        assert (await chat.reply(chat="a")).text == "bob may not run /allow here."
    assert shop.sold == []


async def test_without_decisions_there_are_no_such_commands() -> None:
    shop = Shop(decisions=False)
    async with System.open(":memory:", channels={"irc": (chat := MemoryChannel(shop.agent()))}, grace=0) as system:
        await chat.say("go", chat="a")
        await chat.reply(chat="a")
        ref = await system.get(CHAT)
        await ref.followup("/allow", message_id="word")
        await wait_all_tasks_blocked()
        assert [item.id for item in await ref.pending()] == ["word"]
    assert shop.sold == []


async def test_it_is_answered_days_later_while_nobody_runs_the_turn(autojump_clock: MockClock) -> None:
    shop = Shop()
    channels = {"irc": (chat := MemoryChannel(shop.agent()))}
    async with System.open(":memory:", channels=channels, idle_after=60, now=trio_wall("2026-12-01T08:00Z")) as system:
        await chat.say("go", chat="a")
        await chat.reply(chat="a")
        await trio.sleep(3 * 86_400)
        assert system.statistics()["agents"] == 0
        await chat.say("/allow", chat="a")
        assert [(await chat.reply(chat="a")).text for _ in range(2)] == ["Allowed: Buy tea?", "bought tea"]


async def test_what_has_expired_is_asked_no_more(autojump_clock: MockClock) -> None:
    shop = Shop(expires_s=60)
    channels = {"irc": (chat := MemoryChannel(shop.agent()))}
    async with System.open(":memory:", channels=channels, now=trio_wall("2026-12-01T08:00Z")):
        await chat.say("go", chat="a")
        await chat.reply(chat="a")
        assert (await chat.reply(chat="a")).text == "Nobody answered in time whether this call may run; it did not."
        await chat.say("/allow", chat="a")
        assert (await chat.reply(chat="a")).text == "Nothing waits for your word."
    assert shop.sold == []


async def test_a_route_that_is_none_is_the_calls_error() -> None:
    store, shop = MemoryStore(), Shop(route={"room": "a"})
    async with System.open(store, agents=[agent := shop.agent()]) as system:
        await (await system.spawn(agent, id="a")).ask("go")
    (result,) = await events(store, e.ToolResult)
    assert result.error == "TOOL_ERROR" and "a route has no 'room'" in str(result.content)


@pytest.mark.parametrize("sends", [1, 2])
async def test_asked_once_and_allowed_once_wherever_the_kill(sends: int) -> None:
    shop = Shop("tea", "cake")

    async def scenario(store: Store) -> list[str]:
        async with System.open(store, channels={"irc": (chat := MemoryChannel(shop.agent()))}) as system:
            await chat.say("go", chat="a", id="go")
            ref = await system.get(CHAT)
            for number, word in enumerate(("/allow", "/deny")):
                asked = 0
                async for record in ref.follow(types=["approval/asked"]):
                    asked += record.type == "approval/asked"
                    if asked == 2:
                        break
                for _ in range(sends):
                    await chat.say(word, chat="a", id=f"word{number}")
            return [(await ref.outcome("go")).text]

    async for crash in every_crash(scenario):
        assert crash.result == ["bought tea; A person refused this call."] or "unknown" in crash.result[0], crash
        log = await records(crash.store, CHAT)
        said = [r.event.content for r in log if isinstance(r.event, e.OutboxPut)]
        assert sum("Buy tea?" in str(content) and "Allowed" not in str(content) for content in said) == 1, crash
        assert [r.event.verdict for r in log if isinstance(r.event, e.ApprovalAnswered)] == ["allow", "deny"], crash
    assert shop.sold.count("cake") == 0
