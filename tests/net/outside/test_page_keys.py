"""The inspector without a mouse, in the dark, on a narrow screen, and for those who want no motion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from conftest import Looker
from page_stage import Stage

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.outside


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def focused(page: Page) -> Any:
    """What has the focus: its label, and the text of the row it stands on."""
    return page.evaluate(
        """() => {
            const at = document.activeElement, row = document.getElementById(at.getAttribute("aria-activedescendant"));
            return [at.getAttribute("aria-label") ?? at.textContent, row?.querySelector(".label, .main")?.innerText ?? null];
        }"""
    )


def test_a_walk_by_keys_alone(stage: Stage, page: Page) -> None:
    stage.ask("desk/1", "hello", "look up Oslo")
    stage.send("desk/2", "refund my order")
    page.goto(stage.url)
    page.get_by_role("treeitem", name="desk/2").wait_for()
    press(page, "/")
    page.keyboard.type("desk")
    page.get_by_text("2 agents").wait_for()
    press(page, "ArrowDown")
    page.locator("#timeline .row.turn", has_text="look up Oslo").wait_for()
    assert focused(page) == ["Agents", "desk/1"]
    press(page, "Enter", "End")
    assert focused(page)[0] == "Timeline"
    page.locator("#details").get_by_role("heading", name="Model call").wait_for()
    press(page, "k", "k")
    page.locator("#details").get_by_role("heading", name="lookup").wait_for()
    press(page, "h")
    page.locator("#details").get_by_role("heading", name="Step 1 of turn 2").wait_for()
    press(page, "h")
    page.locator("#timeline .row.step[aria-expanded=false]", has_text="Step 1").wait_for()
    press(page, "l", "r")
    page.get_by_role("dialog").get_by_text("Exactly what was sent").wait_for()
    press(page, "ArrowRight")
    page.get_by_role("dialog").get_by_text("the same").first.wait_for()
    press(page, "Escape", "5")
    page.get_by_role("tab", name="Records", selected=True).wait_for()
    press(page, "t", "m")
    page.keyboard.type("thank you")
    press(page, "Enter")
    page.locator("#timeline .row.turn", has_text="thank you").wait_for()
    press(page, "Escape", "f")
    page.get_by_role("dialog").get_by_label("Id of the fork").wait_for()
    press(page, "Escape", "?")
    page.get_by_role("dialog", name="Keys").wait_for()
    press(page, "Escape", "a")
    page.keyboard.type("ann")
    press(page, "Tab", "Tab", "Enter")  # past the reason, to Allow
    page.get_by_text("Nothing waits for a person.").wait_for()
    press(page, "Escape", "g", "j", "Enter")
    page.locator("#timeline .row.question", has_text="allow by ann").wait_for()


def test_the_focus_is_seen_and_goes_through_everything(stage: Stage, page: Page) -> None:
    stage.ask("desk/1", "hello")
    page.goto(f"{stage.url}#/agent/desk%2F1")
    page.locator("#timeline .row.attempt").click()
    seen: list[Any] = []
    for _ in range(30):
        press(page, "Tab")
        seen.append(
            page.evaluate(
                """() => {
                    const at = document.activeElement, style = getComputedStyle(at);
                    const name = at.getAttribute("aria-label") ?? at.labels?.[0]?.innerText ?? at.innerText.split("\\n")[0];
                    return [name, at === document.body || style.outlineStyle !== "none"];
                }"""
            )
        )
    assert all(visible for _, visible in seen)
    names = [name for name, _ in seen]
    for name in ("Agents", "Which agents", "Fork", "Timeline", "Message", "Send", "What the model was sent", "No questions"):
        assert any(str(one).startswith(name) for one in names), f"{name} is not reached: {names}"


def test_single_keys_can_be_switched_off(stage: Stage, page: Page) -> None:
    stage.ask("desk/1", "hello")
    page.goto(stage.url)
    page.get_by_role("treeitem").first.wait_for()
    press(page, "?")
    page.get_by_label("Single keys act at once").uncheck()
    press(page, "Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    press(page, "?")
    assert page.get_by_role("dialog").count() == 0
    page.reload()
    page.get_by_role("treeitem").first.wait_for()
    press(page, "?")
    assert page.get_by_role("dialog").count() == 0


CONTRAST = """() => {
    const light = (c) => {
        const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        const parts = c.match(/[\\d.]+/g).slice(0, 3).map((v) => linear(v / 255));
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
    };
    const under = (e) => {
        for (; e; e = e.parentElement) {
            const c = getComputedStyle(e).backgroundColor;
            if (!/, 0\\)$/.test(c) && c !== "transparent") return c;
        }
        return getComputedStyle(document.body).backgroundColor;
    };
    const found = [];
    for (const e of document.querySelectorAll("body *")) {
        const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
        if (!own || !e.checkVisibility() || e.closest(":disabled, noscript, .skip, option, [aria-hidden=true]")) continue;
        const [a, b] = [light(getComputedStyle(e).color), light(under(e))].sort((x, y) => y - x);
        const ratio = (a + 0.05) / (b + 0.05);
        if (ratio < 4.5) found.push(`${e.tagName}.${e.className} ${e.textContent.slice(0, 20)} ${ratio.toFixed(2)}`);
    }
    return [...new Set(found)];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_can_be_read_in_light_and_dark(stage: Stage, browser: Browser, scheme: Any) -> None:
    stage.ask("desk/1", "hello", "fail once please", "break it", "fail")
    stage.send("desk/1", "refund my order")
    looker = Looker(browser, color_scheme=scheme)
    page = looker.page
    page.goto(f"{stage.url}#/agent/desk%2F1")
    page.locator("#timeline .row.attempt", has_text="RATE_LIMIT").click()
    page.get_by_role("region", name="Now").get_by_text("Refund 80.00").wait_for()
    assert page.evaluate(CONTRAST) == []
    looker.context.close()


def test_the_theme_is_chosen_and_kept(stage: Stage, page: Page) -> None:
    page.goto(stage.url)
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    button = page.get_by_role("button", name="Theme")
    button.click()
    button.click()
    page.get_by_role("button", name="Theme: dark").wait_for()
    dark = page.evaluate(ground)
    assert dark != light
    page.reload()
    page.get_by_role("button", name="Theme: dark").wait_for()
    assert page.evaluate(ground) == dark


def test_a_narrow_screen_shows_a_pane_at_a_time(stage: Stage, browser: Browser) -> None:
    stage.ask("desk/1", "hello")
    looker = Looker(browser)
    page = looker.page
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(stage.url)
    page.get_by_role("treeitem", name="desk/1").click()
    page.get_by_role("tree", name="Agents").wait_for(state="hidden")
    page.locator("#timeline .row.attempt").click()
    details = page.locator("#details")
    details.get_by_role("heading", name="Model call").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    details.get_by_role("button", name="Back").click()
    details.wait_for(state="hidden")
    page.get_by_role("button", name="Agents").click()
    page.get_by_role("treeitem", name="desk/1").wait_for()
    looker.context.close()


def test_those_who_want_no_motion_get_none(stage: Stage, browser: Browser) -> None:
    stage.send("desk/1", "slowly, please")
    looker = Looker(browser, reduced_motion="reduce")
    page = looker.page
    page.goto(f"{stage.url}#/agent/desk%2F1")
    page.get_by_role("region", name="Now").locator(".pulse").wait_for()
    assert page.evaluate("document.getAnimations().length") == 0
    looker.context.close()
    stage.say(None)
