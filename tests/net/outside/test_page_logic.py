"""The pure modules of the inspector, called in a browser: whatever a log holds, they fold it; what they say of it is so."""

from __future__ import annotations

import difflib
import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from page_stage import Stage

from callboard.storage import events as e
from callboard.storage.folds.outbox import counted
from callboard.storage.messages import Failure, TextBlock
from callboard.storage.records import Record, to_json

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.outside

FOLD = """async (records) => {
    const { Timeline } = await import("/page/fold.js"), { LiveAnswer } = await import("/page/live.js");
    const { rows, scale } = await import("/page/rows.js"), { what, stateOf } = await import("/page/timeline.js");
    const timeline = new Timeline(), live = new LiveAnswer();
    for (const record of records) {
        if (record.type === "assistant/chunk") live.chunk(record);
        else timeline.apply(record), live.apply(record);
    }
    const shown = rows(timeline, { isOpen: () => true });
    for (const { node } of shown) what(node), stateOf(node);
    const places = timeline.top.filter((node) => node.kind === "turn").map((turn) => {
        const at = scale(turn, turn.start + 1000);
        return [turn.start, turn.end ?? turn.start + 1000].map(at);
    });
    return { rows: shown.length, turns: timeline.turns.size, usage: timeline.usage, open: timeline.open, places,
             kinds: shown.map(({ node }) => node.kind) };
}"""


def records(stage: Stage, id: str) -> list[Any]:
    """The log of an agent as the service sends it."""

    async def read() -> list[Any]:
        return [json.loads(to_json(record)) async for record in (await stage.system.get(id)).read()]

    return stage.do(read)


@pytest.fixture
def log(stage: Stage) -> list[Any]:
    """A log with something of everything."""
    stage.ask("desk/1", "hello", "look up Oslo", "fail once please", "break it", "team for a day", "fail")
    stage.send("desk/1", "refund my order")
    return records(stage, "desk/1")


def test_a_log_in_any_order_with_anything_missing_is_folded(stage: Stage, page: Page, log: list[Any]) -> None:
    page.goto(stage.url)
    whole = page.evaluate(FOLD, log)
    assert whole["turns"] == 7 and whole["usage"]["input"] > 0
    assert {"turn", "step", "input", "attempt", "tool", "child"} <= set(whole["kinds"])
    dice = random.Random(7)
    for _ in range(60):
        some = [record for record in log if dice.random() < 0.7]
        if dice.random() < 0.5:
            dice.shuffle(some)
            some = [{**record, "seq": seq} for seq, record in enumerate(some)]
        found = page.evaluate(FOLD, some)
        assert all(0 <= place <= 1 for turn in found["places"] for place in turn)


MARKS = """async (records) => {
    const { Timeline } = await import("/page/fold.js");
    const timeline = new Timeline();
    for (const record of records) timeline.apply(record);
    return timeline.top.map((node) => node.text);
}"""


def test_commands_and_replies_are_said_as_they_were(stage: Stage, page: Page) -> None:
    page.goto(stage.url)
    route = e.Route(channel="irc", chat="#docs")
    events = [
        e.CommandRun(id="m", name="/karma", args="ann"),
        e.OutboxPut(delivery="d", route=route, content=(TextBlock("ann has 1"),), turn=0),
        counted("d", 1),
        e.Note(kind="mine"),
        e.OutboxFailed(delivery="d", failure=Failure("REFUSED", "the room is gone")),
    ]
    log = [json.loads(to_json(Record(seq, 1, event))) for seq, event in enumerate(events)]
    assert page.evaluate(MARKS, log) == [
        "/karma ann",
        "Reply to irc:#docs: ann has 1",
        "A reply that an earlier process left is sent again; processes that ended meanwhile: 1",
        "Note: mine",
        "The reply could not be delivered: the room is gone",
    ]


def test_the_end_of_a_log_is_folded_like_the_whole(stage: Stage, page: Page, log: list[Any]) -> None:
    page.goto(stage.url)
    for start in range(0, len(log), 7):
        found = page.evaluate(FOLD, log[start:])
        assert found["turns"] <= 7


def test_differences_give_both_texts_again(stage: Stage, page: Page) -> None:
    page.goto(stage.url)
    dice = random.Random(11)
    pairs = [["\n".join(dice.choices("abc", k=dice.randrange(12))) for _ in range(2)] for _ in range(80)]
    found: Any = page.evaluate(
        """async (pairs) => {
            const { lines, cut } = await import("/page/diff.js");
            return pairs.map(([a, b]) => [lines(a, b), cut(lines(a, b))]);
        }""",
        pairs,
    )
    for (before, after), (lines, cut) in zip(pairs, found, strict=True):
        assert "\n".join(line["text"] for line in lines if line["sign"] != "+") == before
        assert "\n".join(line["text"] for line in lines if line["sign"] != "-") == after
        same = sum(line["sign"] == " " for line in lines)
        longest = difflib.SequenceMatcher(None, before.split("\n"), after.split("\n"), autojunk=False)
        assert same >= sum(block.size for block in longest.get_matching_blocks())
        assert sum(line.get("count", 1) for line in cut) == len(lines)


def test_a_roster_is_what_its_pages_say(stage: Stage, page: Page) -> None:
    page.goto(stage.url)
    dice = random.Random(13)
    ids = sorted({f"{dice.choice('ab')}/{dice.choice(['x', '￿', '😀', 'é'])}{n}" for n in range(60)}, key=str.encode)
    steps: list[Any] = []
    there = set(dice.sample(ids, 30))
    for _ in range(120):
        there ^= set(dice.sample(ids, 2))
        now = [id for id in ids if id in there]
        after = dice.choice([None, *now])
        behind = [id for id in now if after is None or id.encode() > after.encode()]
        steps.append([after, behind[:7], len(behind) > 7])
    now = [id for id in ids if id in there]
    steps += [[now[n - 1] if n else None, now[n : n + 7], n + 7 < len(now)] for n in range(0, len(now), 7)]
    found: Any = page.evaluate(
        """async (steps) => {
            const { Roster } = await import("/page/roster.js"), roster = new Roster();
            const merge = ([after, ids, more]) =>
                roster.merge(after, { agents: ids.map((id) => ({ id })), more, upto: ids.at(-1) ?? null });
            for (const step of steps) merge(step);
            merge(steps.at(-2));
            return [roster.known.map((agent) => agent.id), roster.whole, roster.tree(new Set()).length];
        }""",
        steps,
    )
    assert found == [now, True, len(now)]


def test_a_page_of_a_search_covers_what_was_looked_at(stage: Stage, page: Page) -> None:
    page.goto(stage.url)
    found: Any = page.evaluate(
        """async () => {
            const { Roster } = await import("/page/roster.js"), roster = new Roster(), told = [];
            const merge = (after, ids, more, upto) => {
                roster.merge(after, { agents: ids.map((id) => ({ id })), more, upto });
                told.push([roster.known.map((agent) => agent.id).join(""), roster.frontier, roster.whole]);
            };
            merge(null, [], true, "c");
            merge("c", ["e"], true, "g");
            merge(null, ["b"], true, "c"); // the first page again: what is behind it stays
            merge("c", [], true, "g");
            merge("g", ["h"], false, "k");
            merge("g", [], true, "j"); // again, and by now there are more
            merge("j", [], true, "m");
            merge("m", [], false, "m");
            return told;
        }"""
    )
    assert found == [
        ["", "c", False],
        ["e", "g", False],
        ["be", "g", False],
        ["b", "g", False],
        ["bh", "k", True],
        ["b", "k", True],
        ["b", "m", False],
        ["b", "m", True],
    ]


def test_what_a_search_asks_for(stage: Stage, page: Page) -> None:
    page.goto(stage.url)
    found: Any = page.evaluate(
        """async (texts) => (await import("/page/roster.js")).query && texts.map((await import("/page/roster.js")).query)""",
        ["", "desk", "is:running  desk 1", "team=front is:person", "a=b=c", "is:nonsense"],
    )
    assert found == [
        {},
        {"text": "desk"},
        {"status": "running", "text": "desk 1"},
        {"labels": {"team": "front"}, "waiting": "approval"},
        {"labels": {"a": "b=c"}},
        {"text": "is:nonsense"},
    ]


def test_words_for_values(stage: Stage, page: Page) -> None:
    page.goto(stage.url)
    found: Any = page.evaluate(
        """async () => {
            const w = await import("/page/words.js");
            return [[0, 999, 1000, 59_949, 61_000, 3_600_000, 90_061_000, 200_000_000, NaN].map(w.duration),
                    [0, 999, 1000, 9_960, 999_499, 1_000_000].map(w.short),
                    [{ kind: "completed" }, { kind: "limit", limit: "steps" }, { kind: "aborted", cause: { kind: "user" } },
                     { kind: "error", error: { code: "X", message: "y" } }, { kind: "new" }, undefined].map(w.ended),
                    w.line("a\\n\\tb  c", 3), w.pretty("{\\"a\\":1}"), w.pretty("{"), w.plain("👩‍👧 می‌خواهم\\u0000")];
        }"""
    )
    assert found == [
        ["0 ms", "999 ms", "1.0 s", "60 s", "1 min 1 s", "1 h", "25 h 1 min", "2 d 7 h", ""],
        ["0", "999", "1.0k", "10k", "999k", "1.0M"],
        ["completed", "reached the limit steps", "stopped by a person", "X: y", "new", "open"],
        "a b…",
        '{\n  "a": 1\n}',
        "{",
        "👩‍👧 می‌خواهم⟨U+0000⟩",
    ]


def test_json_is_laid_out_and_its_values_stay_as_they_are_written(stage: Stage, page: Page) -> None:
    page.goto(stage.url)
    texts = [
        '{"cents":12345678901234567890,"cents":1.10,"s":"a, b: {c}\\"]","e":{},"l":[ ],"n":[1,[null,true]]}',
        '{"a": }',
        "[]",
        '"{"',
        "-1.0e5",
    ]
    found: Any = page.evaluate("""async (texts) => texts.map((await import("/page/words.js")).pretty)""", texts)
    assert (
        found[0]
        == """{
  "cents": 12345678901234567890,
  "cents": 1.10,
  "s": "a, b: {c}\\"]",
  "e": {},
  "l": [],
  "n": [
    1,
    [
      null,
      true
    ]
  ]
}"""
    )
    assert found[1:] == texts[1:]


def test_a_broken_connection_repeats_what_may_be_repeated_and_tells_of_the_rest(stage: Stage, page: Page) -> None:
    page.goto(stage.url)
    found: Any = page.evaluate(
        """async () => {
            const { Link } = await import("/page/link.js"), sockets = [], states = [], told = [];
            class Wire {
                static CONNECTING = 0;
                constructor() { this.sent = []; this.readyState = 1; sockets.push(this); }
                send(text) { this.sent.push(JSON.parse(text)); }
                say(message) { this.onmessage({ data: JSON.stringify(message) }); }
                greet() { this.say({ method: "hello", params: { version: "1", scopes: ["read"], prefix: "", max_message: 1 } }); }
            }
            const real = window.WebSocket;
            window.WebSocket = Wire;
            const link = new Link("ws://nowhere/", (state) => states.push(state));
            link.connect();
            const read = link.call("info", { agent: "a" }).then((value) => told.push(["info", value]));
            link.follow({ agent: "a", after: -1, types: [] }, { records: (records, at) => told.push(["records", at.upto]) });
            sockets[0].greet();
            const fork = link.call("fork", { agent: "a" }).catch((error) => told.push(["fork", error.kinds[0], error.message]));
            const stream = sockets[0].sent.find(({ method }) => method === "follow").params.stream;
            sockets[0].say({ method: "records", params: { stream, upto: 41, head: 50, records: [] } });
            sockets[0].onclose({});
            await fork;
            link.connect();
            sockets[1].greet();
            const again = sockets[1].sent.map(({ method, params }) => [method, params.after ?? null]);
            sockets[1].say({ id: sockets[1].sent.find(({ method }) => method === "info").id, result: 7 });
            await read;
            sockets[1].onclose({});
            clearTimeout(link.timer);
            window.WebSocket = real;
            return { acks: sockets[0].sent.filter(({ method }) => method === "ack").length, again, told, states };
        }"""
    )
    assert found["acks"] == 1 and found["states"] == ["open", "lost", "open", "lost"]
    assert sorted(found["again"]) == [["follow", 41], ["info", None]]
    assert [told[0] for told in found["told"]] == ["records", "fork", "info"]
    assert found["told"][1][1] == "Disconnected" and "Look whether it happened" in found["told"][1][2]


def test_a_child_below_its_parent_leaves_the_parents_id_out(stage: Stage, page: Page) -> None:
    page.goto(stage.url)
    shown: Any = page.evaluate(
        """async (ids) => {
            const { ident } = await import("/page/texts.js");
            return ids.map(([id, below]) => ident(id, below).textContent);
        }""",
        [["demo/1.2.a", None], ["demo/1.2.a", "demo"], ["demo/1.2.a/1.1.b", "demo/1.2.a"], ["demolition", "demo"]],
    )
    assert shown == ["demo/1.2.a", "1.2.a", "1.1.b", "demolition"]
