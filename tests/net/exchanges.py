"""Golden frames: for each method a call with its answer, and each notification, as both ends of the wire make them.

    python tests/net/exchanges.py        writes tests/net/frames/ anew

A frame that changes here has changed for every client there is: then the subprotocol needs another name, or the change undone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Raw

from callboard.actors.values import AgentInfo, AgentSummary, Approval, Outcome, Receipt, Timer, Wait
from callboard.mailbox.items import Item
from callboard.net.wire import ClientEnd, ServerEnd
from callboard.net.wire import methods as m
from callboard.storage import errors
from callboard.storage.events import Completed, Errored
from callboard.storage.messages import Failure, Image, Message, PluginSource, Settings, TextBlock, ToolSpec, Usage

FRAMES = Path(__file__).with_name("frames")
NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
RECORD = '{"seq":7,"time":1764500000000,"type":"turn/end","turn":1,"reason":{"kind":"completed"}}'
A: dict[str, Any] = {"agent": "acme/a"}
USAGE = Usage(input=10, output=5)
OUTCOME: Outcome[Any] = Outcome(
    agent="acme/a", turn=1, reason=Completed(), text="Sunny.", usage=USAGE, steps=1, message_id="m1", seq=9
)
FAILED: Outcome[Any] = Outcome(agent="acme/a", turn=2, reason=Errored(Failure("RATE_LIMIT", "slow down", status=429)), seq=20)

TIMER = Timer(id="t1", due=NOON, message=Message("t1", "user", (TextBlock("Tea."),), PluginSource("timer")), every_s=3600.0)

CALLS: Mapping[str, tuple[m.Params, Any]] = {
    "get": (m.OnAgent(**A), m.Known("acme/a", "planner", "running")),
    "agents": (
        m.Agents(prefix="acme/", labels={"team": "x"}, waiting="approval", after="acme/a", limit=1),
        m.AgentsPage([AgentSummary(id="acme/b", name="planner", head=4, turn=1, usage=USAGE, updated=NOON)], more=True),
    ),
    "usage": (m.Selection(prefix="acme/"), USAGE),
    "info": (
        m.OnAgent(**A),
        AgentInfo(id="acme/a", definition="planner", status="running", turn=1, step=2, waits=(Wait("tool", "lookup (c1)"),)),
    ),
    "messages": (m.OnAgent(**A), [Message("m1", "user", (TextBlock("hi"),))]),
    "pending": (m.OnAgent(**A), [Item(seq=4, place=4, message=Message("m1", "user", (TextBlock("hi"),)), lane="next-turn")]),
    "outcome": (m.OutcomeOf(**A, message_id="m1", timeout=60), OUTCOME),
    "wait_idle": (m.OnAgent(**A), None),
    "read": (m.Read(**A, after=6, upto=7, types=["turn/end"]), m.RecordsPage([Raw(RECORD.encode())], 7)),
    "request": (
        m.RequestAt(**A, seq=9),
        m.Rebuilt(
            seq=6,
            turn=1,
            step=1,
            attempt=1,
            provider="acme",
            model="large",
            settings=Settings(temperature=0.5),
            system="Be brief.",
            tools=(ToolSpec("lookup", "Looks it up.", {"type": "object"}),),
            messages=[Message("m1", "user", (TextBlock("hi"),))],
            count=1,
            digest="9f86d081",
            ok=True,
        ),
    ),
    "follow": (m.Follow(**A, stream=1, after=None, window=4), m.Followed(6)),
    "unfollow": (m.OnStream(stream=1), None),
    "approvals": (
        m.Selection(),
        [
            Approval(
                id="acme/a!12", agent="acme/a", turn=1, call_id="c1", tool="refund", arguments="{}", question="Sure?", asked=NOON
            )
        ],
    ),
    "spawn": (m.Spawn(name="planner", id="acme/a", labels={"team": "x"}), m.Known("acme/a", "planner")),
    "ask": (m.Asking(**A, content="Weather?", message_id="m1", timeout=60, on_cancel="cancel"), OUTCOME),
    "followup": (
        m.Send(
            **A,
            content=[TextBlock("See this"), Image("image/png", data=b"png")],
            message_id="m1",
            route={"channel": "irc", "chat": 7},
            sender="ann",
        ),
        Receipt("m1", 4),
    ),
    "steer": (m.Send(**A, content="Faster.", message_id="m2"), Receipt("m2", 5)),
    "inject": (m.Send(**A, content="It is noon.", message_id="m3"), Receipt("m3", 6)),
    "withdraw": (m.OnMessage(**A, message_id="m1"), True),
    "replace": (m.Replace(**A, message_id="m1", content="Instead.", new_id="m4"), Receipt("m4", 8)),
    "cancel": (m.Cancel(**A, keep_inbox=True), None),
    "timers": (m.OnAgent(**A), [TIMER]),
    "remind": (m.Remind(**A, content="Tea.", after_s=60.0, every_s=3600.0, id="t1"), TIMER),
    "cancel_timer": (m.OnTimer(**A, id="t1"), True),
    "resume": (m.OnAgent(**A), None),
    "compact": (m.OnAgent(**A), True),
    "fork": (m.Fork(**A, turn=2, id="acme/b", definition="planner2"), m.Known("acme/b", "planner2")),
    "answer": (m.Answer(id="acme/a!12", verdict="allow", by="ann"), None),
    "dispose": (m.OnAgent(**A), None),
    "delete": (m.Delete(**A, tree=False), None),
}
"""Method → its parameters and its result."""

ERRORS: tuple[errors.CallboardError, ...] = (
    errors.AgentNotFound("there is no agent 'acme/z'; spawn creates one", agent="acme/z"),
    errors.AskCycle(["a", "b", "a"], agent="a", turn=1),
    errors.InboxFull("acme/a", "next-turn", 10, message_id="m1"),
    errors.InputDropped("withdrawn", why="withdrawn", message_id="m1", agent="acme/a"),
    errors.TurnFailed("turn 2 failed", outcome=FAILED, agent="acme/a", turn=2, seq=20),
    errors.AskTimeout("not over in 60 s", agent="acme/a"),
    errors.ModelError("RATE_LIMIT", "slow down", status=429, retry_after_s=2.5, request_id="r1"),
    errors.ToolError("no hotels", code="NONE"),
    errors.StoreInUse("process 7 owns it", pid=7),
    errors.StoreFull("the disk is full"),
    errors.UnknownRecord("newer", type="quantum/leap", agent="acme/a", seq=3),
    errors.Unauthorized("this token has the scopes read"),
)


def frames() -> dict[str, list[dict[str, Any]]]:
    """File → the frames in it, each with who sends it."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name, (params, value) in CALLS.items():
        client, service = ClientEnd(), ServerEnd()
        id, text = client.call(name, params)
        found[name] = [_frame("client", text), _frame("service", service.answer(id, value))]
    client, service = ClientEnd(), ServerEnd()
    found["notifications"] = [
        _frame("service", service.hello(m.Hello("0.1.0", ["read", "send"], "acme/", 4194304))),
        _frame("service", service.records(1, 7, 9, RECORD)),
        _frame("client", client.note("ack", m.Ack(stream=1, frames=1))),
        _frame("service", service.ended(1, errors.AgentDeleted("the agent 'acme/a' was deleted", agent="acme/a"))),
        _frame("client", client.note("forget", m.Forget(id=4))),
    ]
    found["errors"] = [_frame("service", service.fail(n, error)) for n, error in enumerate(ERRORS, 1)]
    found["errors"].append(_frame("service", service.fail(0, None)))
    return found


def _frame(sender: str, text: str) -> dict[str, Any]:
    return {"from": sender, "frame": json.loads(text)}


def as_text(exchange: list[dict[str, Any]]) -> str:
    """A file of frames: one a line, in a list."""
    return "[\n" + ",\n".join(json.dumps(frame, separators=(",", ":"), ensure_ascii=False) for frame in exchange) + "\n]\n"


if __name__ == "__main__":
    FRAMES.mkdir(exist_ok=True)
    for name, exchange in frames().items():
        (FRAMES / f"{name}.json").write_text(as_text(exchange), encoding="utf-8")
