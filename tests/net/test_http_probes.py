"""Probes, metrics and the document: what those who run a service, and those who write clients for it, ask over HTTP."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from web import browsing
from wired import make, scripted

from callboard.actors.channels.channel import Channel
from callboard.actors.plugins import Retry
from callboard.actors.testing.scripted import Reply
from callboard.actors.values import Receipt
from callboard.net.http.health import readiness
from callboard.storage.errors import Unauthorized

ALL = {"scopes": ["admin"]}
TOKENS = {"reader": {"scopes": ["read"]}, "acme": {"scopes": ["read"], "prefix": "acme/"}, "sender": {"scopes": ["send"]}}


async def test_a_service_lives_and_is_ready(autojump_clock: object) -> None:
    async with browsing(make(scripted()), tokens=TOKENS) as web:
        assert (await web.get("/healthz")).json == {"status": "ok"}
        ready = await web.get("/readyz")
        assert ready.status == 200 and ready.json == {"status": "ready"}


async def test_what_could_not_be_taken_up_is_said_to_those_who_may_know(autojump_clock: object) -> None:
    async with browsing(make(scripted()), tokens=TOKENS) as web:
        web.system.report.failed["acme/1"] = Unauthorized("its log is torn")
        web.system.report.waiting["acme/2"] = "acme/3"
        assert (await web.get("/readyz")).json == {"status": "ready", "failed": 1, "waiting": 1}
        for token in ("acme", "sender", "wrong"):
            assert "failures" not in (await web.get("/readyz", authorization=f"Bearer {token}")).json
        told = (await web.get("/readyz", authorization="Bearer reader")).json["failures"]
        assert told == {
            "acme/1": "its log is torn",
            "acme/2": "waits for its child acme/3, whose definition is missing",
        }


async def test_a_service_that_drains_lives_and_is_not_ready(autojump_clock: object) -> None:
    async with browsing(make(scripted()), tokens=TOKENS, token="reader") as web:
        web.server.site.state = "draining"
        assert (await web.get("/healthz")).status == 200
        ready = await web.get("/readyz")
        assert (ready.status, ready.json["status"], ready.headers["connection"]) == (503, "draining", "close")
        refused = await web.get("/v1/models")
        assert refused.status == 503 and refused.headers["retry-after"] == "1"


def test_a_service_that_recovers_is_not_ready() -> None:
    assert readiness("recovering", None, whole=True).status == "recovering"


async def test_metrics_are_what_system_and_service_count(autojump_clock: object) -> None:
    model = scripted(Reply.fail("SERVER"), "hello", Reply.fail("BAD_REQUEST"))
    desk = {"desk": Hook()}
    async with browsing(make(model, plugins=[Retry()]), tokens=TOKENS, token="reader", channels=desk) as web:
        ref = await web.system.spawn(web.system.definitions["demo"], id="a")
        outcomes = [await ref.ask(text) for text in ("one", "two")]
        await web.get("/nothing")
        await web.get("/v1/models", authorization="Bearer wrong")
        await web.get("/v1/models")
        reply = await web.get("/metrics")
        assert reply.headers["content-type"].startswith("text/plain")
        found = {
            (sample.name, *sorted(sample.labels.values())): sample.value
            for family in text_string_to_metric_families(reply.body.decode())
            for sample in family.samples
        }
        assert found["callboard_turns_total", "completed", "demo"] == 1
        assert found["callboard_turns_total", "demo", "error"] == 1
        assert found["callboard_steps_total", "demo"] == 2
        assert found["callboard_tokens_total", "demo", "output"] == sum(o.usage.output for o in outcomes)
        assert found["callboard_turn_errors_total", "BAD_REQUEST"] == 1
        assert found["callboard_failed_attempts_total", "SERVER"] == 1
        assert found["callboard_turn_duration_seconds_count",] == 2
        assert found["callboard_flush_duration_seconds_bucket", "+Inf"] == found["callboard_flush_duration_seconds_count",] > 0
        assert found["callboard_agents_in_memory",] == 1 and found["callboard_agents_running",] == 0
        assert found["callboard_http_requests_total", "/v1/models", "200"] == 1
        assert found["callboard_credentials_refused_total", "wrong"] == 1
        assert found["callboard_credentials_refused_total", "throttled"] == 0
        assert (
            found["callboard_channel_messages_total", "desk", "sent"] == found["callboard_channel_queue", "desk", "waiting"] == 0
        )
        assert found["callboard_outbox_replies",] == found["callboard_records_unwritten",] == 0
        assert found["callboard_connections",] == found["callboard_followers",] == 0
        newer = await web.get("/metrics", accept="application/openmetrics-text; version=1.0.0")
        assert newer.headers["content-type"].startswith("application/openmetrics-text") and newer.body.endswith(b"# EOF\n")
        assert (await web.get("/metrics", authorization="Bearer sender")).status == 403


async def test_without_the_library_metrics_say_what_is_missing(autojump_clock: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    async with browsing(make(scripted())) as web:
        reply = await web.get("/metrics")
        assert reply.status == 501 and "callboard[net]" in reply.error["message"]


async def test_the_document_has_every_route_and_what_it_takes(autojump_clock: object) -> None:
    async with browsing(make(scripted())) as web:
        document = (await web.get("/openapi.json")).json
        assert document["openapi"] == "3.1.0"
        for route in web.server.site.router.routes:
            assert route.method.lower() in document["paths"][route.path.replace("...}", "}")]
        chat = document["paths"]["/v1/chat/completions"]["post"]
        assert chat["requestBody"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/ChatRequest"}
        assert chat["security"] == [{"bearer": ["send"]}]
        assert document["components"]["schemas"]["ChatRequest"]["required"] == ["model", "messages"]
        assert "security" not in document["paths"]["/healthz"]["get"]


class Hook(Channel):
    """Takes what is signed."""

    signed = True

    def __init__(self) -> None:
        self.got: list[tuple[Any, bytes]] = []

    async def deliver(self, entry: Any) -> None:
        raise AssertionError("nothing to deliver")

    async def receive(self, headers: Any, body: bytes) -> Receipt:
        if headers.get("x-signature") != "good":
            raise Unauthorized("the signature is missing or wrong")
        self.got.append((headers, body))
        return Receipt("m1", 3)


async def test_a_webhook_goes_to_its_channel_which_says_who_may_come(autojump_clock: object) -> None:
    async with browsing(make(scripted()), tokens=TOKENS) as web:
        hook = Hook()
        channels: Any = web.system.channels
        channels["git/hub"] = hook
        taken = await web.ask("POST", "/v1/channels/git%2Fhub", b"\x00raw", x_signature="good")
        assert (taken.status, taken.json) == (202, {"message_id": "m1", "seq": 3})
        assert hook.got[0][1] == b"\x00raw"
        assert (await web.ask("POST", "/v1/channels/git%2Fhub", b"x")).status == 403
        assert (await web.ask("POST", "/v1/channels/other", b"x")).status == 404
        hook.signed = False
        for token, status in (("wrong", 401), ("reader", 403), ("sender", 202)):
            reply = await web.ask("POST", "/v1/channels/git%2Fhub", b"x", x_signature="good", authorization=f"Bearer {token}")
            assert reply.status == status
        channels.clear()
