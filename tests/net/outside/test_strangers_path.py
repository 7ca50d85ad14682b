"""docs/examples/strangers_path.py, walked; and what the page shows of it in a browser."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
from conftest import Looker

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.outside

ROOT = Path(__file__).resolve().parents[3]
LLMOCK = ROOT / ".venv" / "npm" / "node_modules" / ".bin" / "llmock"


# OpenAI's client leaves generators to the collector when a stream is cut, which trio says aloud.
@pytest.mark.filterwarnings("ignore:Exception ignored in. <async_generator:pytest.PytestUnraisableExceptionWarning")
def test_c222_a_strangers_path(browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "docs" / "examples"), *sys.path])
    path: Any = importlib.import_module("strangers_path")

    async def within() -> Counter[str]:
        with trio.fail_after(240):
            return Counter(record.type for record in await path.walk(world))

    with path.opened(tmp_path, str(LLMOCK)) as world:
        types = trio.run(within)
        once = ("turn/start", "turn/end", "turn/resume", "tool/call", "tool/result", "inbox/put")
        assert {name: types[name] for name in once} == dict.fromkeys(once, 1)
        assert types["assistant/message"] == 2 and types["request/failed"] == 1, "the cut answer was asked for again"
        look(browser, world.page, path)


def look(browser: Browser, url: str, path: Any) -> None:
    """Without the token a door; behind it the agent, its tool call, its answer, and how the turn went."""
    looker = Looker(browser)
    page = looker.page
    page.goto(url)
    assert page.locator("#timeline, .panes").count() == 0 and path.AGENT not in page.content()
    page.get_by_label("token").fill(path.TOKEN)
    page.get_by_role("button", name="Enter").click()
    page.get_by_role("treeitem", name=path.AGENT).click()
    timeline, details = page.locator("#timeline"), page.locator("#details")
    timeline.locator(".row.turn", has_text=path.QUESTION).wait_for()
    timeline.get_by_text(path.ANSWER).first.wait_for()
    page.keyboard.press("t")
    timeline.locator(".row.tool", has_text="sums__add").first.click()
    details.get_by_text("21", exact=True).first.wait_for()
    timeline.locator(".row.turn", has_text=path.QUESTION).first.click()
    for state in ("RESTORE", "RUN", "SAVE", "RESPOND"):
        details.get_by_role("row", name=state).first.wait_for()
    assert looker.complaints() == []
    looker.context.close()
