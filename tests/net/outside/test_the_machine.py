"""What `make outside` installed is there: the other tests of this folder fail by name without it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytestmark = pytest.mark.outside

ROOT = Path(__file__).resolve().parents[3]


def test_a_browser_and_the_servers_are_installed() -> None:
    assert shutil.which("chromium"), "run make outside, which installs it"
    assert shutil.which("tmux"), "run make outside, which installs it"
    assert (ROOT / ".venv" / "npm" / "node_modules" / "@copilotkit" / "aimock").is_dir(), "run make outside, which installs it"
