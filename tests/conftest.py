"""The checkout is the package `callboard` itself: keep pytest from importing it a second time."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parent.parent

# `mailbox/` must not shadow the standard library's module of that name.
sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != ROOT]


class RootIsNoTestPackage:
    """pytest takes a folder with an `__init__.py` for a package and imports it under the folder's name."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collect_directory(self, path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        return pytest.Dir.from_parent(parent, path=path) if path == ROOT else None


def pytest_configure(config: pytest.Config) -> None:
    # A property that is slow because the machine is busy has not failed.
    hypothesis.settings.register_profile("callboard", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
    hypothesis.settings.load_profile("callboard")
    config.pluginmanager.register(RootIsNoTestPackage())
    # A shell that starts this in the background lets it ignore Ctrl-C, and all that it starts: but tests send it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
