"""The channels in the box: lines of a terminal, and webhooks with their signatures."""

from __future__ import annotations

import base64
import io
import json
from time import time
from typing import Any

import httpx
import pytest
import trio
from helpers import check, events, make, scripted
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors import System
from callboard.actors.channels import TerminalChannel, WebhookChannel
from callboard.actors.channels.signing import check as check_signature
from callboard.actors.channels.signing import key_of, signed_headers
from callboard.actors.channels.webhook import accept, judge
from callboard.actors.testing import Reply, ScriptedModel
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import DeliveryFailed, InputRefused, ServiceError, Unauthorized, UsageError

# -- terminal


async def test_lines_are_messages_and_answers_are_lines() -> None:
    said = ScriptedModel(lambda request: Reply.text(f"you said {request.messages[-1].text}"))
    target = io.StringIO()
    channel = TerminalChannel(make(said), source=io.StringIO("hello\n\n  \nbye"), target=target)
    async with System.open(":memory:", channels={"tty": channel}) as system:
        await channel.ended.wait()
        await (await system.get("tty:terminal")).wait_idle()
    lines = target.getvalue().splitlines()
    assert lines[-1] == "you said bye" and set(lines) <= {"you said hello", "you said bye"}


# -- signatures

KEY = b"secret"
BODY = b'{"test": 2432232314}'


def test_signatures_are_those_of_standard_webhooks() -> None:
    # The example that the specification's own libraries test with.
    key = key_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = signed_headers(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, BODY)
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_signature_that_is_right_names_the_message() -> None:
    headers = signed_headers(KEY, "m1", 1000, BODY)
    assert check_signature(KEY, headers, BODY, now=1299) == "m1"
    several = headers | {"webhook-signature": f"v1,old v1a,other {headers['webhook-signature']}"}
    assert check_signature(KEY, several, BODY, now=701) == "m1"


@pytest.mark.parametrize(
    ("change", "body", "now"),
    [
        ({}, BODY + b" ", 1000),
        ({"webhook-id": "m2"}, BODY, 1000),
        ({"webhook-timestamp": "1001"}, BODY, 1000),
        ({"webhook-timestamp": "soon"}, BODY, 1000),
        ({"webhook-signature": ""}, BODY, 1000),
        ({"webhook-signature": "v1,\udcff"}, BODY, 1000),
        ({}, BODY, 1301),
        ({}, BODY, 699),
    ],
)
def test_a_signature_that_is_wrong_or_old_is_refused(change: dict[str, str], body: bytes, now: float) -> None:
    headers = signed_headers(KEY, "m1", 1000, BODY) | change
    with pytest.raises(Unauthorized):
        check_signature(KEY, headers, body, now=now)


def test_a_request_without_the_headers_says_which_is_missing() -> None:
    with pytest.raises(InputRefused, match="no header 'webhook-id'"):
        check_signature(KEY, {}, BODY, now=0)


def test_secrets_are_texts_bytes_or_base64() -> None:
    assert key_of("plain") == b"plain" == key_of(b"plain")
    assert key_of("whsec_" + base64.b64encode(b"plain").decode()) == b"plain"
    with pytest.raises(UsageError, match="no base64"):
        key_of("whsec_!")


# -- messages that come in


def test_a_message_is_read_from_the_body_and_its_id_from_body_or_header() -> None:
    body = b'{"chat":"a","text":"hi","sender":"ann","thread":"t","unknown":1}'
    posted = accept({"Webhook-Id": "h1"}, body, key=None, now=0)
    assert (posted.text, posted.sender, posted.route, posted.id) == ("hi", "ann", {"chat": "a", "thread": "t"}, "h1")
    assert accept({}, b'{"chat":"a","text":"hi","id":"b1"}', key=None, now=0).id == "b1"
    assert accept({}, b'{"chat":"a","text":"hi"}', key=None, now=0).id is None


@pytest.mark.parametrize(
    "body", [b"", b"hi", b"[]", b"\xff", b'{"chat":"a"}', b'{"chat":1,"text":"hi"}', b'{"chat":"","text":"hi"}']
)
def test_a_body_that_is_no_message_is_refused_with_a_sentence(body: bytes) -> None:
    with pytest.raises(InputRefused, match=r"the body is no message|names no chat"):
        accept({}, body, key=None, now=0)


@pytest.mark.parametrize(
    ("status", "after", "final", "waits"),
    [
        (500, None, False, None),
        (429, "7", False, 7),
        (503, "soon", False, None),
        (410, None, True, None),
        (302, None, False, None),
    ],
)
def test_what_an_answer_means(status: int, after: str | None, final: bool, waits: float | None) -> None:
    with pytest.raises(DeliveryFailed) as caught:
        judge(status, after)
    assert (caught.value.final, caught.value.retry_after_s) == (final, waits)


def test_retry_after_may_be_a_date_and_success_is_silent() -> None:
    judge(204, None)
    with pytest.raises(DeliveryFailed) as caught:
        judge(503, "Wed, 21 Oct 2015 07:28:00 GMT")
    assert caught.value.retry_after_s == 0


# -- the channel


class Peer:
    """An HTTP server that answers as the test says."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.requests = list(answers), list[httpx.Request]()

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0) if self.answers else 200
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer, headers={"retry-after": "5"} if answer == 429 else {})


async def test_replies_are_posted_until_they_are_taken_with_one_id_and_a_signature(autojump_clock: MockClock) -> None:
    peer, store = Peer(500, httpx.ConnectError("refused"), 429, 200), MemoryStore()
    agent = make(scripted("hello"))
    hook = WebhookChannel(
        agent, url="https://peer.test/in", secret=KEY, headers={"authorization": "Bearer x"}, transport=httpx.MockTransport(peer)
    )
    async with System.open(store, channels={"hook": hook}) as system:
        await wait_all_tasks_blocked()
        body = b'{"chat":"a","text":"hi"}'
        headers = signed_headers(KEY, "m1", int(time()), body)
        receipt = await hook.receive(headers, body)
        assert receipt.message_id == "m1"
        assert await hook.receive(headers, body) == receipt
        began = trio.current_time()
        await (await system.get("hook:a")).wait_idle()
        await trio.sleep(60)
        assert len(peer.requests) == 4 and trio.current_time() - began >= 60
    (put,) = await events(store, e.OutboxPut, "hook:a")
    assert {request.headers["webhook-id"] for request in peer.requests} == {put.delivery}
    last = peer.requests[-1]
    assert last.headers["authorization"] == "Bearer x" and last.headers["content-type"] == "application/json"
    assert check_signature(KEY, last.headers, last.content, now=time()) == put.delivery
    said = json.loads(last.content)
    assert said["text"] == "hello" and said["route"] == {"channel": "hook", "chat": "a"} and said["agent"] == "hook:a"
    assert len(await events(store, e.OutboxSent, "hook:a")) == 1
    await check(store)


async def test_a_webhook_without_an_address_only_receives(autojump_clock: MockClock) -> None:
    store, hook = MemoryStore(), WebhookChannel(make(scripted("hello")))
    async with System.open(store, channels={"hook": hook}) as system:
        await wait_all_tasks_blocked()
        await hook.receive({}, b'{"chat":"a","text":"hi"}')
        await (await system.get("hook:a")).wait_idle()
        await wait_all_tasks_blocked()
    (lost,) = await events(store, e.OutboxFailed, "hook:a")
    assert "no url" in lost.failure.message


async def test_a_webhook_that_is_not_running_says_so_and_one_that_is_signed_asks_for_it() -> None:
    hook, body = WebhookChannel(make(scripted()), secret="s"), b'{"chat":"a","text":"hi"}'
    with pytest.raises(ServiceError, match="not running"):
        await hook.receive(signed_headers(b"s", "m", int(time()), body), body)
    async with System.open(":memory:", channels={"hook": hook}):
        await wait_all_tasks_blocked()
        with pytest.raises(InputRefused, match="webhook-id"):
            await hook.receive({}, body)
        assert hook.signed and not WebhookChannel().signed
        assert "s" not in repr(hook).replace("<WebhookChannel 'hook'>", ""), "a secret is never shown"
