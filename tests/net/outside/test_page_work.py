"""The inspector in a real browser: what it shows of agents, and what a person does with it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import msgspec
import pytest
from page_stage import Stage

from callboard.net import handlers

if TYPE_CHECKING:
    from conftest import Looker
    from playwright.sync_api import Page

pytestmark = pytest.mark.outside


def rows(page: Page, kind: str) -> list[str]:
    """The texts of a kind of rows in the timeline."""
    return [text.replace("\n", " ") for text in page.locator(f"#timeline .row.{kind} .label").all_inner_texts()]


def choose(page: Page, text: str) -> None:
    """Click the row of the timeline that holds a text."""
    page.locator("#timeline .row", has_text=text).first.click()


def test_it_loads_from_its_own_port_alone(stage: Stage, looker: Looker) -> None:
    stage.ask("desk/17", "good morning", "look up Oslo")
    page = looker.page
    page.goto(stage.url)
    page.get_by_role("treeitem", name="desk/17").click()
    page.locator("#timeline .row.turn", has_text="look up Oslo").wait_for()
    places = {(urlsplit(url).hostname, urlsplit(url).port) for url in looker.asked}
    assert places == {("127.0.0.1", stage.port)}
    assert any(url.startswith("ws:") for url in looker.asked)


def test_an_empty_service_says_what_to_do(stage: Stage, page: Page) -> None:
    page.goto(stage.url)
    page.get_by_text("No agents yet.").wait_for()
    page.get_by_text("Choose an agent.").wait_for()


def test_agents_with_children_search_and_filters(stage: Stage, page: Page) -> None:
    stage.ask("trip/oslo", "team for a weekend", labels={"team": "travel"})
    stage.ask("desk/1", "hello")
    stage.send("desk/2", "refund my order")
    page.goto(stage.url)
    tree = page.get_by_role("tree", name="Agents")
    item = tree.get_by_role("treeitem")
    page.get_by_text("6 agents").wait_for()
    assert [item.nth(n).get_attribute("aria-level") for n in range(6)] == ["1", "1", "1", "2", "2", "2"]
    assert item.nth(2).get_attribute("aria-expanded") == "true"
    item.nth(2).locator(".twisty").click()
    page.get_by_text("3 below").wait_for()
    assert item.count() == 3
    search = page.get_by_role("searchbox")
    search.fill("oslo/1")
    page.get_by_text("3 agents").wait_for()
    search.fill("team=travel")
    page.get_by_text("4 agents").wait_for()  # a child has its parent's labels
    search.fill("nobody of this name")
    page.get_by_text("No agent fits.").wait_for()
    search.fill("")
    page.get_by_label("Which agents").select_option("is:person")
    page.get_by_text("1 agent", exact=True).wait_for()
    page.get_by_role("treeitem", name="desk/2").get_by_text("waits for a person").wait_for()


def test_a_timeline_of_turns_steps_attempts_tools_and_children(stage: Stage, page: Page) -> None:
    stage.ask("trip/oslo", "fail once, then look up nothing", "look up Bergen", "break it", "team for a weekend", "fail")
    page.goto(f"{stage.url}#/agent/trip%2Foslo")
    page.locator("#timeline .row.turn", has_text="Turn 5").wait_for()
    page.keyboard.press("O")
    page.locator("#timeline .row.turn").nth(4).wait_for()
    assert [text.split(" ")[1:3] for text in rows(page, "turn")] == [["Turn", f"{n}"] for n in range(1, 6)]
    choose(page, "Turn 4")
    page.keyboard.press("t")
    page.keyboard.press("l")
    page.locator("#timeline .row.child").nth(2).wait_for()
    assert len(rows(page, "child")) == 3 and len(rows(page, "tool")) == 3 and len(rows(page, "step")) == 2
    choose(page, "Turn 5")
    details = page.locator("#details")
    details.get_by_text("BAD_REQUEST: the model does not take this").wait_for()
    details.get_by_role("row", name="RUN ModelError: the model does not take this").wait_for()
    choose(page, "trip/oslo/")
    details.get_by_role("link").first.click()
    page.locator(".agent-head h2", has_text="trip/oslo/").wait_for()
    page.locator(".agent-head").get_by_role("link", name="trip/oslo").click()
    page.locator(".agent-head h2", has_text=re.compile("^trip/oslo$")).wait_for()


def test_tools_and_failed_attempts_have_all_their_parts(stage: Stage, page: Page) -> None:
    stage.ask("desk/1", "fail once please", "break it")
    page.goto(f"{stage.url}#/agent/desk%2F1")
    details = page.locator("#details")
    choose(page, "RATE_LIMIT")
    details.get_by_text("another try after").wait_for()
    details.get_by_text("429").wait_for()
    choose(page, "breaks")
    choose(page, "Tool")
    details.get_by_text("ValueError: the drawer is stuck").wait_for()
    details.get_by_text("As recorded").click()
    details.get_by_text('"type": "tool/call"').wait_for()


def test_what_happens_now_appears_by_itself(stage: Stage, page: Page) -> None:
    stage.ask("desk/1", "hello")
    page.goto(f"{stage.url}#/agent/desk%2F1")
    page.locator("#timeline .row.turn", has_text="hello").wait_for()
    stage.send("desk/1", "slowly, about Oslo")
    now = page.get_by_role("region", name="Now")
    now.get_by_text("I begin with the harbour").wait_for()
    stage.say("Oslo lies ", "at the head ")
    now.get_by_text("Oslo lies at the head").wait_for()
    stage.say("of a fjord.")
    now.get_by_text("Oslo lies at the head of a fjord.").wait_for()
    page.locator(".agent-head .dot[aria-label=running]").wait_for()
    stage.say(None)
    page.locator("#timeline .row.attempt", has_text="Oslo lies at the head of a fjord.").wait_for()
    now.wait_for(state="hidden")
    page.locator(".agent-head .dot[aria-label=idle]").wait_for()


def test_an_answer_that_runs_already_is_shown_from_its_beginning(stage: Stage, page: Page) -> None:
    stage.send("desk/1", "slowly, about Oslo")
    stage.say("The beginning, ", "and the middle.")
    page.goto(f"{stage.url}#/agent/desk%2F1")
    page.get_by_role("region", name="Now").get_by_text("The beginning, and the middle.").wait_for()
    stage.say(None)


def test_the_request_behind_an_answer_and_what_differs(stage: Stage, page: Page) -> None:
    stage.ask("desk/1", "look up Oslo", "thank you")
    page.goto(f"{stage.url}#/agent/desk%2F1")
    choose(page, "You said: thank you")
    page.get_by_role("button", name="What the model was sent").click()
    sheet = page.get_by_role("dialog")
    sheet.get_by_text("Exactly what was sent").wait_for()
    sheet.get_by_text("Never promise a refund").wait_for()
    sheet.get_by_text("4 tools").wait_for()
    sheet.get_by_text("lookup The weather of a city").click()
    sheet.get_by_text('"city"').first.wait_for()
    sheet.get_by_text("5 messages").wait_for()
    assert sheet.locator(".message .tag", has_text="new").count() == 2
    sheet.get_by_role("tab", name="Difference").click()
    sheet.get_by_text("3 messages the same, 0 gone, 2 new").wait_for()
    assert [text.split("\n")[-1] for text in sheet.locator(".message.come").all_inner_texts()] == [
        "Done. Oslo: 4 °C, rain from the west until the evening",
        "thank you",
    ]
    sheet.get_by_role("tab", name="JSON").click()
    sheet.get_by_text('"digest"').wait_for()
    page.keyboard.press("Escape")
    sheet.wait_for(state="detached")


def test_a_question_is_allowed_and_another_denied_with_who_and_why(stage: Stage, page: Page) -> None:
    stage.send("desk/1", "refund my order")
    stage.send("desk/2", "refund my order")
    page.goto(f"{stage.url}#/agent/desk%2F1")
    now = page.get_by_role("region", name="Now")
    now.get_by_text("Refund 80.00 EUR for order 17?").wait_for()
    now.get_by_role("button", name="Allow").click()  # without a name nothing is sent
    now.get_by_label("Your name").fill("ann@shop")
    now.get_by_role("button", name="Allow").click()
    page.locator("#timeline .row.question", has_text="allow by ann@shop").wait_for()
    page.locator("#timeline .row.attempt", has_text="are on their way").wait_for()
    page.get_by_role("button", name="1 question").click()
    sheet = page.get_by_role("dialog")
    assert sheet.get_by_label("Your name").input_value() == "ann@shop"
    sheet.get_by_label("Why, or the result").fill("not twice")
    sheet.get_by_role("button", name="Deny").click()
    sheet.get_by_text("Nothing waits for a person.").wait_for()
    page.keyboard.press("Escape")
    page.goto(f"{stage.url}#/agent/desk%2F2")
    choose(page, "Refund 80.00")
    page.locator("#details").get_by_text("not twice").first.wait_for()


def test_send_steer_and_the_inbox(stage: Stage, page: Page) -> None:
    stage.ask("desk/1", "hello")
    page.goto(f"{stage.url}#/agent/desk%2F1")
    box = page.get_by_label("Message")
    box.fill("slowly, please")
    box.press("Enter")
    page.get_by_role("region", name="Now").get_by_text("Answering").wait_for()
    assert box.input_value() == ""
    box.fill("and then this")
    page.get_by_role("button", name="Send").click()
    page.get_by_role("tab", name="Inbox").click()
    page.locator(".item", has_text="and then this").wait_for()
    page.get_by_label("How it is sent").select_option("steer")
    box.fill("to the point")
    box.press("Enter")
    page.locator(".item", has_text="to the point").get_by_text("Steer").wait_for()
    page.get_by_role("tab", name="Inbox 2").wait_for()
    page.locator(".item", has_text="and then this").get_by_role("button", name="Withdraw").click()
    page.locator(".item", has_text="and then this").wait_for(state="detached")
    stage.say("Yes.", None)
    page.get_by_role("tab", name="Timeline").click()
    page.locator("#timeline .row.input", has_text="to the point").wait_for()


def test_stop_keeps_the_inbox_parked_if_that_is_wanted(stage: Stage, page: Page) -> None:
    stage.send("desk/1", "slowly, please")
    stage.send("desk/1", "for later")
    page.goto(f"{stage.url}#/agent/desk%2F1")
    page.get_by_role("region", name="Now").get_by_text("Answering").wait_for()
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    page.locator("#timeline .row.turn", has_text="stopped by a person").wait_for()
    page.get_by_role("tab", name="Inbox").click()
    page.locator(".item", has_text="for later").get_by_text("Parked").wait_for()


def test_a_fork_from_a_record_and_a_turn_that_runs_again(stage: Stage, page: Page) -> None:
    stage.ask("desk/1", "hello", "look up Oslo", "thank you")
    page.goto(f"{stage.url}#/agent/desk%2F1")
    choose(page, "Turn 3")
    page.locator("#details").get_by_role("button", name="Fork before it").click()
    form = page.get_by_role("dialog")
    form.get_by_text("all records before turn 3").wait_for()
    form.get_by_label("Id of the fork").fill("desk/1~again")
    form.get_by_role("button", name="Fork").click()
    page.locator(".agent-head h2", has_text="desk/1~again").wait_for()
    page.locator(".agent-head").get_by_text("fork of").wait_for()
    page.locator("#timeline .row.turn", has_text="thank you").wait_for()
    page.get_by_role("treeitem", name="desk/1~again").wait_for()


def test_outbox_reminders_and_records(stage: Stage, page: Page) -> None:
    stage.ask("desk/1", "hello", route={"channel": "irc", "chat": "7"})

    async def remind() -> None:
        await (await stage.system.get("desk/1")).remind("water the plants", every_s=86_400, id="plants")

    stage.do(remind)
    page.goto(f"{stage.url}#/agent/desk%2F1")
    page.get_by_role("tab", name="Outbox 1").click()
    page.locator(".item", has_text="to irc:7").get_by_text("waiting").wait_for()
    page.get_by_role("tab", name="Reminders").click()
    page.locator(".item", has_text="water the plants").get_by_text("every 24 h").wait_for()
    page.get_by_role("button", name="Take back").click()
    page.get_by_text("No reminders.").wait_for()
    page.get_by_role("tab", name="Records").click()
    page.locator(".record", has_text="turn/end").click()
    page.locator("#details").get_by_text('"type": "turn/end"').wait_for()


def test_an_error_is_told_in_words(stage: Stage, page: Page) -> None:
    stage.ask("desk/1", "hello")
    page.goto(f"{stage.url}#/agent/nobody")
    page.get_by_role("alert").get_by_text("There is no agent 'nobody'").wait_for()
    page.get_by_role("button", name="All agents").click()
    page.get_by_role("treeitem", name="desk/1").click()
    page.get_by_role("button", name="Fork").click()
    page.get_by_role("dialog").get_by_label("Definition").fill("unheard of")
    page.get_by_role("dialog").get_by_role("button", name="Fork").click()
    page.locator("#told").get_by_text("no definition 'unheard of'").wait_for()
    page.get_by_role("dialog").wait_for()  # what was written stays


def test_the_end_is_followed_until_a_row_is_chosen(stage: Stage, page: Page) -> None:
    stage.ask("desk/1", *[f"look up place {n}" for n in range(20)])
    page.goto(f"{stage.url}#/agent/desk%2F1")
    page.locator("#timeline .row.turn", has_text="place 19").wait_for()
    stage.ask("desk/1", "look up one more")
    page.locator("#timeline .row.turn", has_text="one more").wait_for()
    page.get_by_role("region", name="Now").wait_for(state="hidden")  # it makes room for the timeline as it goes
    page.locator("#timeline .row.attempt", has_text="Done. one more").click()
    top = page.locator("#timeline").evaluate("list => list.scrollTop")
    seen = page.locator("#timeline .row.attempt[aria-selected=true]").bounding_box()
    stage.ask("desk/1", "look up the last")
    page.locator("#timeline .row[aria-setsize]").first.wait_for()
    page.get_by_role("treeitem", name="desk/1").get_by_text("turn 22").wait_for()
    assert page.locator("#timeline").evaluate("list => list.scrollTop") == top
    assert page.locator("#timeline .row.attempt[aria-selected=true]").bounding_box() == seen  # nothing closed above it


def test_an_agent_that_is_deleted_meanwhile_says_so(stage: Stage, page: Page) -> None:
    stage.ask("desk/1", "hello")
    page.goto(f"{stage.url}#/agent/desk%2F1")
    page.locator("#timeline .row.turn", has_text="hello").wait_for()
    stage.do(stage.system.delete, "desk/1")
    page.locator(".notice").get_by_text("was deleted").wait_for()
    page.get_by_role("button", name="Try again").click()
    page.get_by_role("alert").get_by_text("was deleted").wait_for()


def test_what_is_streamed_can_be_marked_meanwhile(stage: Stage, page: Page) -> None:
    stage.send("desk/1", "slowly, please")
    stage.say("The first words. ")
    page.goto(f"{stage.url}#/agent/desk%2F1")
    now = page.get_by_role("region", name="Now")
    now.get_by_text("The first words.").wait_for()
    page.evaluate("getSelection().selectAllChildren(document.querySelector('.answer-live .prose:not(.quiet)'))")
    stage.say("And more.")
    now.get_by_text("The first words. And more.").wait_for()
    assert page.evaluate("getSelection().toString()").startswith("The first words.")
    stage.say(None)


def test_a_link_to_a_record_leads_there(stage: Stage, page: Page) -> None:
    stage.ask("desk/1", *[f"message {n}" for n in range(60)])
    page.goto(f"{stage.url}#/agent/desk%2F1")
    page.locator("#timeline .row.turn", has_text="message 59").click()
    address = page.url
    assert "?at=" in address
    page.goto("about:blank")
    page.goto(address)
    page.locator("#details").get_by_role("heading", name="Turn 60").wait_for()
    page.locator("#timeline .row.turn[aria-selected=true]", has_text="message 59").wait_for()


def test_a_search_for_what_is_rare_says_how_far_it_is_and_waits_for_a_word(
    stage: Stage, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = handlers.HANDLERS["agents"]

    async def look_at_many(desk: Any, params: Any, caller: Any) -> Any:
        found = await look(desk, params, caller)
        return msgspec.structs.replace(found, looked=found.looked * (1000 if params.labels or params.text else 1))

    monkeypatch.setattr(handlers, "LOOKED", 5)
    monkeypatch.setitem(cast("dict[str, Any]", handlers.HANDLERS), "agents", look_at_many)
    for number in range(40):
        stage.ask(f"a{number:02}", "hi", labels={"team": "rare" if number in (3, 33) else "x"})
    page.goto(stage.url)
    page.get_by_text("40 agents").wait_for()
    search = page.get_by_role("searchbox")
    search.fill("team=rare")
    page.get_by_text("1+ agent").wait_for()
    page.get_by_text("Among the first 25,000.").wait_for()
    page.get_by_role("button", name="Search on").click()
    page.get_by_text("2 agents", exact=True).wait_for()
    search.fill("nobody")
    page.get_by_text("No agent fits among the first 20,000.").wait_for()
    page.locator(".empty").get_by_role("button", name="Search on").click()
    page.get_by_text("No agent fits.").wait_for()
