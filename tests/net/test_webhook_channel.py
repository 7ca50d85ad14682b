"""A webhook through the whole house: a signed request in by the service, the agent's answer out by a signed request."""

from __future__ import annotations

import json
from time import time

import httpx
import pytest
from trio.testing import wait_all_tasks_blocked
from web import Web, browsing
from wired import make

from callboard.actors import Limits
from callboard.actors.channels import WebhookChannel
from callboard.actors.channels.signing import check, signed_headers
from callboard.actors.testing.scripted import Reply, ScriptedModel

KEY = b"a secret"
TOKENS = {"sender": {"scopes": ["send"]}, "other": {"scopes": ["send"], "prefix": "acme/"}}


async def knock(web: Web, body: bytes, *, key: bytes | None = KEY, id: str = "m1") -> tuple[int, str]:
    """A request of the service that calls back; status, and the message's id or what is wrong."""
    headers = {name.replace("-", "_"): value for name, value in signed_headers(key, id, int(time()), body).items()}
    reply = await web.ask("POST", "/v1/channels/hook", body, **headers)
    return reply.status, reply.json.get("message_id") or json.dumps(reply.json)


async def test_a_message_comes_in_and_its_answer_goes_out(autojump_clock: object) -> None:
    posted: list[httpx.Request] = []

    async def peer(request: httpx.Request) -> httpx.Response:
        posted.append(request)
        return httpx.Response(200)

    agent = make(ScriptedModel(lambda request: Reply.text(f"You said {request.messages[-1].text}")))
    hook = WebhookChannel(agent, url="https://peer.test/in", secret=KEY, transport=httpx.MockTransport(peer))
    async with browsing(tokens=TOKENS, channels={"hook": hook}) as web:
        body = b'{"chat":"ann","text":"hi"}'
        assert await knock(web, body) == (202, "m1")
        assert await knock(web, body) == (202, "m1"), "sent again, acknowledged again"
        await (await web.system.get("hook:ann")).wait_idle()
        await wait_all_tasks_blocked()
        (request,) = posted
        assert json.loads(request.content)["text"] == "You said hi"
        assert check(KEY, request.headers, request.content, now=time()) == json.loads(request.content)["delivery"]


@pytest.mark.parametrize(
    ("body", "key", "status"),
    [
        (b'{"chat":"ann","text":"hi"}', b"guessed", 403),
        (b'{"chat":"ann","text":"hi"}', None, 422),
        (b"hello", KEY, 422),
        (b'{"chat":"","text":"hi"}', KEY, 422),
        (b'{"chat":"ann","text":"  "}', KEY, 422),
    ],
    ids=["forged", "unsigned", "no json", "no chat", "empty"],
)
async def test_what_is_wrong_is_said_and_nothing_is_written(
    body: bytes, key: bytes | None, status: int, autojump_clock: object
) -> None:
    hook = WebhookChannel(make(ScriptedModel([])), secret=KEY)
    async with browsing(tokens=TOKENS, channels={"hook": hook}) as web:
        got, said = await knock(web, body, key=key)
        assert got == status, said
        assert [agent.id async for agent in web.system.agents()] == []


async def test_a_full_inbox_is_to_be_tried_again_later(autojump_clock: object) -> None:
    agent = make(ScriptedModel([])).replace(limits=Limits(pending=0))
    hook = WebhookChannel(agent, secret=KEY)
    async with browsing(tokens=TOKENS, channels={"hook": hook}) as web:
        got, said = await knock(web, b'{"chat":"ann","text":"hi"}')
        assert got in (429, 503), said


async def test_without_a_secret_a_token_says_who_may_send(autojump_clock: object) -> None:
    hook = WebhookChannel(make(ScriptedModel(lambda request: Reply.text("fine"))))
    async with browsing(tokens=TOKENS, channels={"hook": hook}) as web:
        for token, status in (("wrong", 401), ("other", 403), ("sender", 202)):
            reply = await web.ask("POST", "/v1/channels/hook", b'{"chat":"ann","text":"hi"}', authorization=f"Bearer {token}")
            assert reply.status == status, reply.json
