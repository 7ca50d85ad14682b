"""A real browser for the tests of the inspector's page, and a service to look at."""

from __future__ import annotations

import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from page_stage import Stage

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",  # a container gives 64 MB of shared memory, and pages die without a word when it is full
)


@contextmanager
def launched() -> Generator[Browser]:
    """Chromium, with an empty profile, quiet but for what a page asks for."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One browser for all tests."""
    with launched() as chromium:
        yield chromium


@pytest.fixture
def stage() -> Iterator[Stage]:
    """A service with no agent yet."""
    with Stage(":memory:") as running:
        yield running


class Looker:
    """A page that is watched: what it says to the console, and where it sends requests."""

    def __init__(self, browser: Browser, **options: Any) -> None:
        self.context = browser.new_context(viewport={"width": 1440, "height": 900}, **options)
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("websocket", lambda socket: self.asked.append(socket.url))

    def complaints(self) -> list[str]:
        """What the console heard of errors, but for connections that a test breaks itself."""
        return [line for line in self.said if "WebSocket connection to" not in line and "ERR_CONNECTION" not in line]


@pytest.fixture
def looker(browser: Browser) -> Iterator[Looker]:
    """A fresh page; the console must stay empty."""
    looking = Looker(browser)
    yield looking
    looking.context.close()
    assert looking.complaints() == []


@pytest.fixture
def page(looker: Looker) -> Page:
    """The page of `looker`."""
    return looker.page
