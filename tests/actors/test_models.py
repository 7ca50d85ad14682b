"""Models: the base class, default settings, the registry that finds an adapter by name, and failures as the log keeps them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from trio.testing import assert_checkpoints

from callboard.actors.failures import LONGEST, as_error, flatten
from callboard.actors.models import BUILT_IN, Model, Models, Prepared, Resolved, apply_defaults, no_adapter
from callboard.actors.testing import ScriptedModel
from callboard.storage import chunks as c
from callboard.storage.errors import ModelError, ToolError, UsageError
from callboard.storage.messages import Chunk, Failure, Request, Settings


class Acme(Model):
    provider = "acme"

    def __init__(self, error: Exception | None = None) -> None:
        self.closed, self.error = 0, error

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        yield c.finish("stop")

    async def aclose(self) -> None:
        self.closed += 1
        if self.error:
            raise self.error


def test_an_adapter_needs_no_more_than_a_provider_and_a_stream() -> None:
    request = Request("acme", "large")
    assert Acme().prepare(request) == Prepared(request, {}, None, None, True, False)
    assert repr(Acme()) == "<Acme acme>"
    with pytest.raises(TypeError, match="stream"):
        type("Empty", (Model,), {"provider": "x"})()


def test_a_named_copy_shares_what_the_adapter_holds() -> None:
    acme = Acme()
    large = acme.named("large")
    assert (acme.name, large.name, large.provider) == (None, "large", "acme")
    assert repr(large) == "<Acme acme:large>"
    assert type(large) is Acme


# -- default settings


def test_c101_defaults_fill_what_nobody_set_and_are_named() -> None:
    got = apply_defaults(Settings(temperature=0.0), {"stop": ["END"], "max_tokens": 8192, "temperature": 1.0})
    assert got == (Settings(temperature=0.0, max_tokens=8192, stop=("END",)), ("max_tokens", "stop"))


def test_without_defaults_settings_stay_as_they_are() -> None:
    settings = Settings(max_tokens=0)
    assert apply_defaults(settings, {}) == (settings, ())
    assert apply_defaults(settings, {"max_tokens": 5, "effort": None}) == (settings, ())


def test_a_default_of_an_unknown_name_or_a_wrong_type_is_refused() -> None:
    with pytest.raises(UsageError, match="'max_token', which is no setting; use temperature, max_tokens"):
        apply_defaults(Settings(), {"max_token": 1})
    with pytest.raises(UsageError, match="do not fit the settings"):
        apply_defaults(Settings(), {"max_tokens": "many"})


# -- the registry


def test_the_narrower_key_wins_and_all_are_bound_to_the_name() -> None:
    exact, provider, rest = (ScriptedModel([], provider=p) for p in ("exact", "provider", "rest"))
    models = Models({"*": rest, "openai": provider, "openai:gpt-5": exact})
    found = {name: models.resolve(name) for name in ("openai:gpt-5", "openai:o3", "acme:a:b")}
    assert [(str(r), r.model and r.model.provider, r.model and r.model.name) for r in found.values()] == [
        ("openai:gpt-5", "exact", "gpt-5"),
        ("openai:o3", "provider", "o3"),
        ("acme:a:b", "rest", "a:b"),
    ]


def test_an_adapter_bound_to_its_name_already_is_used_as_it_is() -> None:
    large = Acme().named("large")
    assert Models({"acme:large": large}).find("acme", "large") is large
    assert Models().resolve(large) == Resolved("acme", "large", large)


def test_the_agents_own_adapter_answers_for_its_provider() -> None:
    own = Acme().named("large")
    models = Models({"*": ScriptedModel([])})
    assert models.find("acme", "large", own=own) is own
    small = models.find("acme", "small", own=own)
    assert isinstance(small, Acme)
    assert small.name == "small"
    assert isinstance(models.find("openai", "x", own=own), ScriptedModel)


def test_an_unregistered_route_keeps_its_proposal() -> None:
    assert Models({"acme": Acme()}).resolve("nobody:gpt-5") == Resolved("nobody", "gpt-5", None)
    error = no_adapter("nobody", "gpt-5")
    assert (error.code, error.transient) == ("NO_ADAPTER", False)
    assert "'nobody:gpt-5'" in str(error)


def test_c107_what_was_resolved_stays_when_the_registration_changes() -> None:
    first, second = Acme().named("large"), Acme().named("large")
    models = Models({"acme": first})
    before = models.resolve("acme:large").model
    models["acme"] = second
    assert (before, models.resolve("acme:large").model) == (first, second)
    models["acme"] = first
    assert models.find("acme", "large") is first
    del models["acme"]
    assert models.find("acme", "large") is None
    with pytest.raises(UsageError, match="no adapter is registered under 'acme'; there are none"):
        del models["acme"]


async def test_a_built_in_adapter_is_made_once_when_it_is_needed_and_given_ones_beat_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Acme] = []

    def make() -> Acme:
        made.append(Acme())
        return made[-1]

    models = Models()
    assert models.find("acme", "large") is None
    monkeypatch.setitem(BUILT_IN, "acme", make)
    assert made == []
    assert isinstance(models.find("acme", "large"), Acme)
    models.find("acme", "small")
    assert len(made) == 1
    assert isinstance(Models({"*": ScriptedModel([])}).find("acme", "large"), ScriptedModel)
    await models.aclose()
    assert made[0].closed == 1


@pytest.mark.parametrize(
    ("model", "guess"),
    [
        ("gpt-5", "did you mean 'openai:gpt-5'?"),
        ("claude-opus", "did you mean 'anthropic:claude-opus'?"),
        ("lorge", "did you mean 'acme:large'?"),
        ("scripted", "did you mean 'scripted:NAME'?"),
        ("scripted:", "did you mean 'scripted:NAME'?"),
        (":gpt-5", "did you mean 'openai:gpt-5'?"),
        ("", "write provider and model with a colon between, such as 'openai:gpt-5'"),
        (5, "a model is a text like 'openai:gpt-5' or a Model, not 5"),
        (Acme(), r"bind it to one: Acme\(...\).named\('NAME'\)"),
        (type("Lost", (Acme,), {"provider": ""})().named("x"), "set `provider = ...` in its class"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused_with_a_guess(model: Any, guess: str) -> None:
    models = Models({"acme:large": Acme(), "scripted": ScriptedModel([])})
    with pytest.raises(UsageError, match=guess):
        models.resolve(model)


@pytest.mark.parametrize(
    ("key", "model", "says"),
    [
        ("", Acme(), "is no key for an adapter"),
        ("acme:", Acme(), "is no key for an adapter"),
        ("acme", Acme, r"is the class Acme; pass an instance: Acme\(...\)"),
        ("acme", "openai:gpt-5", "pass an instance of a subclass of Model"),
    ],
)
def test_a_registration_that_cannot_work_is_refused(key: str, model: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Models({key: model})


async def test_closing_closes_each_adapter_once_and_one_that_fails_keeps_none_open() -> None:
    broken, good = Acme(OSError("stuck")), Acme()
    with pytest.raises(ExceptionGroup, match="closing the model adapters failed") as caught:
        await Models({"a": broken, "b": good, "c": good}).aclose()
    assert (broken.closed, good.closed) == (1, 1)
    assert [str(e) for e in caught.value.exceptions] == ["stuck"]
    with assert_checkpoints():
        await Models().aclose()
    assert repr(Models({"b": good, "a": good})) == "<Models a, b>"


# -- failures


def raised(error: Exception, cause: Exception | None = None, context: Exception | None = None) -> Exception:
    error.__context__ = context
    if cause:
        error.__cause__ = cause
    return error


def test_c081_a_model_error_keeps_all_it_knows_there_and_back() -> None:
    failure = Failure("RATE_LIMIT", "slow down", 429, 2.0, "req_1")
    assert flatten(as_error(failure)) == failure


def test_c085_an_error_of_ours_keeps_its_code_and_a_foreign_code_is_not_trusted() -> None:
    foreign = ValueError("x")
    foreign.code = "RATE_LIMIT"  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue]
    assert flatten(ToolError("no hotel", code="NO_HOTEL")) == Failure("NO_HOTEL", "no hotel")
    assert flatten(foreign) == Failure("UNKNOWN", "ValueError: x")
    assert flatten(UsageError("no")) == Failure("UNKNOWN", "UsageError: no")


def test_c096_the_unknown_is_its_chain_of_causes_outermost_first() -> None:
    inner = raised(KeyError("y"), context=OSError())
    assert flatten(raised(ValueError("x"), cause=inner)) == Failure("UNKNOWN", "ValueError: x ← KeyError: 'y' ← OSError")
    assert flatten(raised(ValueError("x"), context=inner)).message.startswith("ValueError: x ← KeyError")


def test_c096_a_context_that_was_suppressed_is_left_out() -> None:
    try:
        try:
            raise KeyError("secret")
        except KeyError:
            raise ValueError("x") from None
    except ValueError as error:
        assert flatten(error).message == "ValueError: x"


def test_c096_no_traceback_no_endless_chain_and_no_page_of_text() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert flatten(one).message == "ValueError: one ← ValueError: two"
    long = flatten(ValueError("x" * 100_000)).message
    assert (len(long), long[-1]) == (LONGEST, "…")
    try:
        raise ValueError("here")
    except ValueError as error:
        assert "test_models" not in flatten(error).message


def test_a_group_lists_its_members_and_one_of_a_single_member_is_that_member() -> None:
    rate = ModelError("RATE_LIMIT", "slow", status=429)
    assert flatten(ExceptionGroup("g", [ExceptionGroup("h", [rate])])) == Failure("RATE_LIMIT", "slow", 429)
    group = ExceptionGroup("two things", [ValueError("x"), raised(KeyError("y"), cause=OSError("z"))])
    assert flatten(group).message == "ExceptionGroup: two things (2 sub-exceptions) [ValueError: x; KeyError: 'y' ← OSError: z]"


def test_what_the_log_could_not_keep_is_left_out_of_a_failure() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert flatten(Mute()).message == "Mute: <its text raised RuntimeError>"
    assert flatten(ValueError("\ud83c")).message == "ValueError: \ufffd"
    odd = ModelError("X", "m", status=cast("Any", "429"), retry_after_s=cast("Any", "2"), request_id=cast("Any", 7))
    assert flatten(odd) == Failure("X", "m")
