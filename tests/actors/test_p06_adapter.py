"""docs/examples/p06_adapter.py against a server that speaks Acme: it keeps every rule, and an agent works with it."""

from __future__ import annotations

import runpy
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from acme import Server, acme_server

from callboard import Agent, System, tool
from callboard.actors import AgentRef, Model
from callboard.actors.testing import check_model
from callboard.storage import events as e
from callboard.storage.messages import Request

# httpx nests generators of its own and leaves them to the garbage collector when a response is not read to its end.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http(x|core):ResourceWarning")

EXAMPLE = runpy.run_path(str(Path(__file__).resolve().parents[2] / "docs" / "examples" / "p06_adapter.py"))


@asynccontextmanager
async def acme() -> AsyncGenerator[tuple[Server, Model]]:
    async with acme_server() as server:
        model: Model = EXAMPLE["Acme"](key="secret", base_url=server.url)
        yield server, model
        await model.aclose()


@asynccontextmanager
async def agent(**options: Any) -> AsyncGenerator[tuple[Server, AgentRef[str]]]:
    planner: Agent[Any, str] = Agent("planner", model="acme:large", plugins=(), **options)
    async with acme() as (server, model), System.open(":memory:", agents=[planner], models={"acme": model}) as system:
        yield server, await system.spawn(planner, id="t")


async def test_it_keeps_every_rule() -> None:
    async with acme() as (_, model):
        failures = {"fail with 429": "RATE_LIMIT", "fail with 500": "SERVER", "drop": "TRANSPORT", "surprise": "BAD_RESPONSE"}
        await check_model(model, "large", failures=failures)
        await check_model(model.named("small"), "small")


async def test_a_model_it_does_not_have_is_refused_before_anything_is_sent() -> None:
    async with acme() as (server, model):
        with pytest.raises(
            AssertionError, match=r"`prepare` refused a plain request for 'huge': ModelError: acme has no model 'huge'"
        ):
            await check_model(model, "huge")
        assert server.asked == []
        assert model.prepare(Request("acme", "small")).context_window == 32_000


async def test_an_agent_talks_to_it() -> None:
    async with agent(system="Be brief.") as (server, ref):
        outcome = await ref.ask("hello?")
        assert outcome.result() == "hello" and (outcome.usage.input, outcome.usage.output) == (1, 2)
        assert server.keys == ["Bearer secret"]
        (asked,) = server.asked
        assert (asked["model"], asked["system"], asked["max_tokens"]) == ("large", "Be brief.", 8192)
        assert (await ref.ask("long")).reason.kind == "max-tokens"


async def test_its_calls_are_run_and_their_results_sent_back() -> None:
    @tool(replay="safe")
    async def look(city: str) -> str:
        """Look at a city."""
        return f"{city}: rain"

    async with agent(tools=[look]) as (server, ref):
        assert (await ref.ask("look")).result() == "hello"
        first, second = server.asked
        assert [t["name"] for t in first["tools"]] == ["look"]
        assert second["messages"][-2]["calls"] == [{"id": "c1", "name": "look", "args": '{"city":"Oslo"}'}]
        assert second["messages"][-1]["results"] == {"c1": "Oslo: rain"}


async def test_its_failures_are_failures_of_the_turn() -> None:
    async with agent() as (_, ref):
        reason = (await ref.ask("fail with 429")).reason
        assert isinstance(reason, e.Errored)
        failure = reason.error
        assert (failure.code, failure.message, failure.status) == ("RATE_LIMIT", "oops", 429)
        assert (failure.retry_after_s, failure.request_id) == (2, "r-7")


async def test_a_cancel_closes_the_connection() -> None:
    async with agent() as (server, ref):
        receipt = await ref.followup("wait")
        async for delta in ref.deltas(after=receipt.seq):
            assert delta.text == "hel"
            await ref.cancel()
            break
        await server.gone.wait()
        outcome = await ref.outcome(receipt.message_id)
        assert outcome.reason.kind == "aborted" and outcome.text == "hel"
