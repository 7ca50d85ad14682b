"""What agents, models and tools write is text on the page and nothing else; and who has no token sees nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from conftest import Looker
from msgspec import inspect as shapes
from page_stage import Stage

from callboard.storage.events import EVENTS

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


def values(shape: Any) -> list[Any]:
    """Values of a type that have markup wherever a text can be; of a union one of each."""
    match shape:
        case shapes.StrType() | shapes.AnyType():
            return [MARKUP]
        case shapes.LiteralType():
            return list(shape.values)
        case shapes.IntType() | shapes.FloatType():
            return [1]
        case shapes.BoolType():
            return [False]
        case shapes.BytesType():
            return [b"x"]
        case shapes.UnionType():
            return [value for one in shape.types for value in values(one)]
        case shapes.DictType():
            return [{MARKUP: MARKUP}]
        case shapes.VarTupleType() | shapes.ListType():
            return [tuple(values(shape.item_type))]
        case shapes.TupleType():
            return [tuple(values(one)[0] for one in shape.item_types)]
        case shapes.StructType():
            fields = {field.name: values(field.type) for field in shape.fields}
            most = max([len(found) for found in fields.values()], default=1)
            return [shape.cls(**{name: v[n % len(v)] for name, v in fields.items() if v}) for n in range(most)]
        case _:
            return []


FIRST = ["inbox/put", "turn/start", "inbox/claim", "step/start", "user/message", "request/header"]
LAST = ["step/end", "turn/end"]


async def write_everything(stage: Stage) -> None:
    """One turn in which everything happens that the vocabulary knows, in every form."""
    middle = [name for name in EVENTS if name not in FIRST + LAST and not name.startswith("log/")]
    await stage.system.spawn(stage.system.definitions["desk"], id=AGENT, labels={MARKUP: MARKUP})
    actor = await stage.system._runtime.registry.actor(AGENT)  # pyright: ignore[reportPrivateUsage]
    for name in [*FIRST, *middle, *LAST]:
        actor.log.append(*values(shapes.type_info(EVENTS[name])))
    await actor.log.commit()


def test_whatever_a_record_can_hold_is_shown_as_text(stage: Stage, page: Page) -> None:
    stage.do(write_everything, stage)
    page.goto(stage.url)
    page.get_by_role("treeitem").first.click()
    rows, made = page.locator("#timeline .row"), page.locator("main :is(img, script, b, svg, u), dialog :is(img, script, b)")
    rows.nth(20).wait_for()
    for n in range(rows.count()):
        rows.nth(n).click()
        assert made.count() == 0 and "owned" not in page.title(), rows.nth(n).inner_text()
    for tab in ("Inbox", "Outbox", "Reminders", "Records"):
        page.get_by_role("tab", name=tab).click()
        page.get_by_role("tab", name=tab, selected=True).wait_for()
        assert made.count() == 0 and "owned" not in page.title(), tab
    page.locator("main").get_by_text("onerror").nth(5).wait_for()
    assert made.count() == 0 and "owned" not in page.title()


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
