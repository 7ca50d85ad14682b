"""Adapters that installed packages offer: found by provider, made once when they are needed, and clear about what is wrong."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Callable, Iterator
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from callboard.actors.models import Model, Models, no_adapter
from callboard.actors.testing import ScriptedModel
from callboard.net.adapters import Anthropic, OpenAI
from callboard.storage import UsageError
from callboard.storage import chunks as c
from callboard.storage.messages import Chunk, Request

MODULE: Any = importlib.import_module("callboard.actors.models.installed")
Offer = Callable[..., None]


class Acme(Model):
    provider = "acme"

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        yield c.finish("stop")


class Other(Acme):
    provider = "other"


class Broken(Acme):
    def __init__(self) -> None:
        raise KeyError("ACME_REGION")


class Lacking(Acme):
    def __init__(self) -> None:
        raise UsageError("pip install 'acme[all]'")


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Offer]:
    """Packages that offer `provider="Class Class"`, and no others."""

    def offered(**values: str) -> None:
        found = [EntryPoint(name, f"{__name__}:{value}", MODULE.GROUP) for name in values for value in values[name].split()]

        def packages(*, group: str) -> list[EntryPoint]:
            return found if group == MODULE.GROUP else []

        monkeypatch.setattr(MODULE, "entry_points", packages)
        MODULE._offers.cache_clear()

    yield offered
    MODULE._offers.cache_clear()


def test_callboards_own_are_found_like_anybodys() -> None:
    models = Models()
    assert (type(models.find("openai", "gpt-5")), type(models.find("anthropic", "claude"))) == (OpenAI, Anthropic)
    assert MODULE.SHIPPED == ("anthropic", "openai") and set(MODULE.SHIPPED) <= set(MODULE.offered())


def test_what_a_package_offers_is_made_once_and_what_was_given_beats_it(offer: Offer) -> None:
    offer(acme="Acme")
    models = Models()
    large, small = models.find("acme", "large"), models.find("acme", "small")
    assert large is not None and small is not None and (large.name, small.name) == ("large", "small")
    assert type(large).__name__ == "Acme"
    assert isinstance(Models({"acme": ScriptedModel([])}).find("acme", "large"), ScriptedModel)
    assert models.find("nobody", "large") is None
    with pytest.raises(UsageError, match="'acme' is a provider: did you mean 'acme:NAME'"):
        models.resolve("acme")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("Broken", r"the adapter for 'acme', test_installed:Broken of a package without a name, cannot be made: KeyError"),
        ("Missing", r"cannot be made: AttributeError"),
        ("Lacking", r"^pip install 'acme\[all\]'$"),
        ("Other", r"offers an adapter for 'acme' and makes <Other other>"),
        ("Acme Other", r"both offer an adapter for 'acme'; pass one to System.open"),
    ],
)
def test_a_package_that_cannot_be_used_says_so(offer: Offer, value: str, says: str) -> None:
    offer(acme=value)
    with pytest.raises(UsageError, match=says):
        Models().find("acme", "large")


def test_an_installation_older_than_its_code_says_what_to_do(offer: Offer) -> None:
    assert "pass one to System.open" in str(no_adapter("acme", "large"))
    offer()
    assert Models().find("openai", "gpt-5") is None
    assert "installation here is older than its code" in str(no_adapter("openai", "gpt-5"))
    assert "`make setup`" in str(no_adapter("openai", "gpt-5"))
