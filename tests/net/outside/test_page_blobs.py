"""Pictures and files of a log on the inspector's page: pictures are shown, everything else can be saved, and nothing runs."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from conftest import Looker
from page_stage import Stage

from callboard.storage.messages import File, Image, TextBlock

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.outside

SVG = b"<svg xmlns='http://www.w3.org/2000/svg'><script>top.document.title='owned'</script></svg>"
HTML = b"<script>document.title='owned'</script>"


def png(width: int, height: int) -> bytes:
    """A green picture of this size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    lines = zlib.compress((b"\0" + b"\x2f\x80\x60" * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", lines) + chunk(b"IEND", b"")


async def send(stage: Stage, *blocks: Any) -> None:
    """An input with these blocks, and its turn."""
    ref = await stage.system.spawn(stage.system.definitions["desk"], id="ann")
    await ref.ask([TextBlock("see"), *blocks])


def choose_input(stage: Stage, page: Page) -> None:
    page.goto(f"{stage.url}#/agent/ann")
    page.locator("#timeline .row.turn").first.wait_for()
    page.locator("#timeline .row.input").first.click()


def width(page: Page, picture: str) -> int:
    """Of a picture, once it is there."""
    found: int = page.locator(picture).evaluate("picture => picture.decode().then(() => picture.naturalWidth)")
    return found


def test_pictures_are_shown_and_everything_else_can_be_saved(stage: Stage, page: Page) -> None:
    blocks = [
        Image.from_bytes(png(40, 30), "image/png"),
        Image.from_bytes(SVG, "image/svg+xml"),
        File.from_bytes(HTML, "text/html", name="../<b>page</b>.html"),
    ]
    stage.do(send, stage, *blocks)
    choose_input(stage, page)
    assert width(page, ".media img") == 40
    assert page.locator(".media img").count() == 1
    assert page.locator(".media").count() == page.locator(".media a[download]").count() == 3
    with page.expect_download() as saving:
        page.locator(".media", has_text="page").get_by_role("link", name="Save").click()
    assert "/" not in saving.value.suggested_filename and saving.value.suggested_filename.endswith(".html")
    assert Path(saving.value.path()).read_bytes() == HTML
    assert "owned" not in page.title()


def test_the_request_shows_its_pictures_too(stage: Stage, page: Page) -> None:
    stage.do(send, stage, Image.from_bytes(png(20, 10), "image/png"))
    choose_input(stage, page)
    assert width(page, ".media img") == 20
    page.keyboard.press("r")
    assert width(page, "dialog .media img") == 20


def test_a_picture_that_is_none_is_said_to_be_none(stage: Stage, page: Page) -> None:
    stage.do(send, stage, Image.from_bytes(HTML, "image/png"))
    choose_input(stage, page)
    page.get_by_text("This browser cannot show it.").wait_for()
    assert page.locator(".media img").count() == 0 and "owned" not in page.title()


def test_a_blob_opened_alone_runs_nothing(stage: Stage, browser: Browser) -> None:
    stage.do(send, stage, Image.from_bytes(png(20, 10), "image/png"))
    looking = Looker(browser)
    choose_input(stage, looking.page)
    assert width(looking.page, ".media img") == 20
    with looking.context.expect_page() as opening:
        looking.page.locator(".media .picture").click()
    opened = opening.value
    opened.wait_for_load_state()
    assert "/blobs/" in opened.url and opened.evaluate("document.images[0].naturalWidth") == 20
    assert opened.evaluate("self.origin") == "null", "a sandbox of its own"
    looking.context.close()
