"""The pictures of docs/inspector.md: five scenes of the page, played on a real service and taken in a real browser.

    python tests/net/outside/pictures.py        takes them anew, into docs/images/

They are kept small by a palette: a page of few colours loses nothing by it.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from page_stage import Stage

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

IMAGES = Path(__file__).resolve().parents[3] / "docs" / "images"
SIZE = {"width": 1280, "height": 760}
COLOURS = 64
STORY = (
    "Oslo lies at the head of a fjord, between forest and water. ",
    "The opera house slopes into the harbour, and you may walk on its roof. ",
    "From there it is ten minutes on foot to the fortress, ",
)


def _cast(stage: Stage) -> None:
    """Who is on the stage in every scene but the empty one."""
    stage.ask(
        "desk/17", "Good morning!", "look up Oslo", "fail once, then tell me", "break it", "thank you", labels={"team": "front"}
    )
    stage.ask("trip/oslo", "a team for the weekend", labels={"team": "travel"})
    for n in range(12):
        stage.ask(f"guest/{n:03}", "Hello", *(["look up Bergen"] if n % 3 == 0 else []))


def _empty(stage: Stage, page: Page) -> None:
    page.goto(stage.url)
    page.get_by_text("No agents yet.").wait_for()


def _busy(stage: Stage, page: Page) -> None:
    _cast(stage)
    stage.ask("desk/20", "look up Bergen")
    stage.send("desk/20", "slowly, what is there to see in Oslo?")
    stage.send("desk/20", "And where do we eat?")
    stage.say(*STORY)
    page.goto(f"{stage.url}#/agent/desk%2F20")
    page.get_by_role("region", name="Now").get_by_text("ten minutes on foot").wait_for()
    page.get_by_role("tab", name="Inbox 1").wait_for()


def _question(stage: Stage, page: Page) -> None:
    _cast(stage)
    stage.ask("desk/18", "Good evening")
    stage.send("desk/18", "My order came broken, please refund it.")
    page.goto(f"{stage.url}#/agent/desk%2F18")
    page.get_by_role("region", name="Now").get_by_label("Your name").fill("ann@hotel")
    page.get_by_text("1 question").wait_for()


def _error(stage: Stage, page: Page) -> None:
    _cast(stage)
    stage.ask("desk/19", "Good evening", "break it", "fail")
    page.goto(f"{stage.url}#/agent/desk%2F19")
    page.locator("#timeline .row.turn", has_text="BAD_REQUEST").click()
    page.locator("#details").get_by_role("rowheader", name="RUN").wait_for()


def _request(stage: Stage, page: Page) -> None:
    _cast(stage)
    page.goto(f"{stage.url}#/agent/desk%2F17")
    page.locator("#timeline .row.attempt", has_text="You said: thank you").click()
    page.get_by_role("button", name="What the model was sent").click()
    page.get_by_role("tab", name="Difference").click()
    page.get_by_text("messages the same").wait_for()


SCENES: Mapping[str, tuple[Callable[[Stage, Any], None], str]] = {
    "inspector-empty": (_empty, "light"),
    "inspector-busy": (_busy, "light"),
    "inspector-question-dark": (_question, "dark"),
    "inspector-error": (_error, "light"),
    "inspector-request-dark": (_request, "dark"),
}
"""File → the scene, and the theme it is taken in."""


def take(browser: Browser, name: str) -> bytes:
    """Play a scene and take its picture."""
    play, scheme = SCENES[name]
    with Stage(":memory:") as stage:
        options: Any = {"viewport": SIZE, "color_scheme": scheme, "reduced_motion": "reduce"}
        context = browser.new_context(**options)
        page = context.new_page()
        play(stage, page)
        picture = page.screenshot()
        context.close()
    return _small(picture)


def _small(picture: bytes) -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return out.getvalue()


def main() -> int:
    """Take them all."""
    from conftest import launched

    IMAGES.mkdir(exist_ok=True)
    with launched() as browser:
        for name in SCENES:
            picture = take(browser, name)
            (IMAGES / f"{name}.png").write_bytes(picture)
            print(f"{name}.png: {len(picture):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
