"""Every picture of the documentation can be taken again, is small, and shows the page as it is drawn now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pictures import IMAGES, SCENES, take

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.outside

LARGEST = 150_000
ALIKE = 0.5
"""Of a picture's size: texts and times differ from run to run, a page that is not drawn is far smaller."""


@pytest.mark.parametrize("name", SCENES)
def test_a_scene_is_what_the_documentation_shows(browser: Browser, name: str) -> None:
    kept = (IMAGES / f"{name}.png").read_bytes()
    taken = take(browser, name)
    assert len(kept) < LARGEST
    assert ALIKE < len(taken) / len(kept) < 1 / ALIKE


def test_no_picture_is_left_over() -> None:
    assert {path.stem for path in IMAGES.glob("inspector-*.png")} == set(SCENES)
