"""What agents, models and tools write is text on the page and nothing else; and who has no token sees nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from conftest import Looker
from page_stage import Stage

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.outside

MARKUP = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script><b>bold</b>"
AGENT = "<b>desk</b>/<svg onload=alert(1)>"
HIDDEN = "pay \u202emoc.live\u202c to a\u200bnn, \u2066now\u2069"


def test_markup_is_shown_as_text_everywhere(stage: Stage, page: Page) -> None:
    stage.ask(AGENT, MARKUP, f"look up {MARKUP}", f"break {MARKUP}", labels={"<i>": "<u>x</u>"})
    stage.send(AGENT, "refund my order")
    page.goto(stage.url)
    page.get_by_role("treeitem").first.click()
    page.locator("#timeline .row.turn", has_text="<b>bold</b>").first.wait_for()
    page.get_by_role("region", name="Now").get_by_text("Refund 80.00").wait_for()
    page.keyboard.press("t")
    for _ in range(24):
        page.keyboard.press("k")
    for tab in ("Inbox", "Outbox", "Reminders", "Records", "Timeline"):
        page.get_by_role("tab", name=tab).click()
    page.keyboard.press("a")
    page.get_by_role("dialog").get_by_text("Refund 80.00").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("r")
    page.get_by_role("dialog").get_by_text("<script>").first.wait_for()
    page.get_by_role("tab", name="JSON").click()
    assert "owned" not in page.title()
    assert page.locator("main img, main script, main b, main svg, main u, dialog img, dialog script, dialog b").count() == 0


def test_what_hides_in_a_text_is_written_out(stage: Stage, page: Page) -> None:
    stage.ask("desk/1", HIDDEN)
    page.goto(f"{stage.url}#/agent/desk%2F1")
    page.locator("#timeline .row.input", has_text="⟨U+202E⟩moc.live⟨U+202C⟩ to a⟨U+200B⟩nn").click()
    text = page.locator("#details .prose").inner_text()
    assert text == "pay ⟨U+202E⟩moc.live⟨U+202C⟩ to a⟨U+200B⟩nn, ⟨U+2066⟩now⟨U+2069⟩"


def test_a_huge_text_is_folded_and_unfolds(stage: Stage, page: Page) -> None:
    stage.ask("desk/1", "word " * 100_000)
    page.goto(f"{stage.url}#/agent/desk%2F1")
    page.locator("#timeline .row.input").click()
    prose = page.locator("#details .prose")
    assert len(prose.inner_text()) <= 3000
    page.get_by_role("button", name="more characters").click()
    assert len(prose.inner_text()) > 150_000


def test_addresses_lead_to_the_web_or_nowhere(stage: Stage, page: Page) -> None:
    page.goto(stage.url)
    found: Any = page.evaluate(
        """async (urls) => {
            const { blocks } = await import("/page/texts.js");
            const link = (url) => blocks([{ type: "image", media_type: "image/png", url }])[0].querySelector("a");
            return urls.map((url) => link(url)?.href ?? null);
        }""",
        ["https://example.org/a.png", "javascript:alert(1)", "data:text/html,x", "JaVaScRiPt:alert(1)", "//example.org", "x"],
    )
    assert found == ["https://example.org/a.png", None, None, None, None, None]


def test_without_a_token_there_is_a_door_and_with_it_a_page(browser: Browser) -> None:
    tokens = {"a-long-secret": {"scopes": ["read"], "prefix": "acme/"}}
    with Stage(":memory:", tokens=tokens) as stage:
        stage.ask("acme/1", "hello")
        stage.ask("other/1", "secret")
        looker = Looker(browser)
        page = looker.page
        page.goto(stage.url)
        assert page.locator("#timeline, .panes").count() == 0
        page.get_by_label("token").fill("wrong")
        page.get_by_role("button").click()
        page.get_by_role("alert").wait_for()
        page.get_by_label("token").fill("a-long-secret")
        page.get_by_role("button").click()
        page.get_by_role("treeitem", name="acme/1").click()
        page.get_by_text("1 agent", exact=True).wait_for()
        page.get_by_placeholder("This token may only read.").wait_for()
        assert page.get_by_role("button", name="Fork").is_disabled()
        page.locator("#timeline .row.attempt").click()
        page.get_by_role("button", name="What the model was sent").click()
        page.get_by_text("Exactly what was sent").wait_for()
        page.keyboard.press("Escape")
        page.keyboard.press("?")
        page.get_by_text("This token may read, with agents whose ids begin acme/").wait_for()
        page.get_by_role("button", name="Sign out").click()
        page.get_by_label("token").wait_for()
        page.goto(stage.url)
        page.get_by_label("token").wait_for()
        looker.context.close()
