"""How long a model's connection may take: what the agent says, for every adapter in the box."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
import trio

from callboard import Agent, Limits, System
from callboard.actors.models import connect_s
from callboard.net.adapters import Anthropic, OpenAI
from callboard.storage.errors import TurnFailed

BOTH = pytest.mark.parametrize("kind", [OpenAI, Anthropic], ids=["openai", "anthropic"])
Kind = type[OpenAI] | type[Anthropic]


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server whose queue is full: connecting to it neither succeeds nor fails."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        queued = [socket.socket() for _ in range(4)]
        for each in queued:
            each.setblocking(False)
            each.connect_ex(listening.getsockname())
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        for each in queued:
            each.close()


@BOTH
@pytest.mark.parametrize(("own", "of_agent"), [(None, 0.2), (0.2, 600.0), (600.0, 0.2)], ids=["agent", "shorter", "never longer"])
async def test_the_agent_says_how_long_and_an_adapter_may_say_less(
    kind: Kind, silent: str, own: float | None, of_agent: float
) -> None:
    model = kind(key="sk-test-0123456789", base_url=silent, connect_s=own, provider="far")
    agent = Agent("demo", model=model.named("large"), plugins=[], limits=Limits(connect_s=of_agent, first_chunk_s=60))
    async with System.open(":memory:", agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        with trio.fail_after(60), pytest.raises(TurnFailed, match="TIMEOUT: connecting to far took too long"):
            (await ref.ask("hi")).result()
    await model.aclose()


async def test_no_limit_is_no_limit_and_nothing_is_said_outside_of_a_call(silent: str) -> None:
    assert connect_s() is None
    model = OpenAI(key="sk-test-0123456789", base_url=silent, provider="far")
    agent = Agent("demo", model=model.named("large"), plugins=[], limits=Limits(connect_s=float("inf")))
    async with System.open(":memory:", agents=[agent], grace=0) as system:
        ref = await system.spawn(agent, id="a")
        with trio.move_on_after(0.3) as waiting:
            await ref.ask("hi")
        assert waiting.cancelled_caught
    await model.aclose()
