"""The registry of adapters: from the name of a model, `provider:name`, to a `Model` bound to it.

What the system was opened with (`models=`) beats the built-in adapters, and the narrower key the wider one: `openai:gpt-5`,
then `openai`, then `*`. Nobody answers for an unknown route here: its proposal stands, a `stream` plugin may own it, and
only when none does the request fails (`no_adapter`). The registry may change while turns run: what a caller has resolved
stays as it is, so a request that was prepared by an adapter is dispatched to that one.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping

import trio
from msgspec import Struct

from ...storage.errors import ModelError, UsageError
from .installed import SHIPPED, installed, offered
from .model import Model

EXAMPLE = "openai:gpt-5"
"""The name that messages show; a provider and a model, with a colon between."""

BUILT_IN: dict[str, Callable[[], Model]] = {}
"""Provider → what makes its adapter, for a process that wants another than the one that a package offers (`installed`)."""

_MAKERS_OF = {"gpt": "openai", "o1": "openai", "o3": "openai", "o4": "openai", "claude": "anthropic", "gemini": "google"}


class Resolved(Struct, frozen=True, gc=False):
    """Where a model's name leads: `model` is its adapter, bound to `name`; None if no adapter is registered."""

    provider: str
    name: str
    model: Model | None = None

    def __str__(self) -> str:
        return f"{self.provider}:{self.name}"


class Models:
    """The adapters of one system."""

    def __init__(self, mapping: Mapping[str, Model] | None = None) -> None:
        self._given: dict[str, Model] = {}
        self._made: dict[str, Model] = {}
        self._bound: dict[tuple[str, str], Model] = {}
        for key, model in (mapping or {}).items():
            self[key] = model

    def __setitem__(self, key: str, model: Model) -> None:
        """Register an adapter under `provider:name`, `provider` or `*`, from the next resolution on."""
        _check(key, model)
        self._given[key] = model
        self._bound.clear()

    def __delitem__(self, key: str) -> None:
        """Take an adapter out again; it is not closed: running requests may still use it."""
        if key not in self._given:
            raise UsageError(f"no adapter is registered under {key!r}; there are {', '.join(map(repr, self._given)) or 'none'}")
        del self._given[key]
        self._bound.clear()

    def __repr__(self) -> str:
        return f"<Models {', '.join(sorted(self._given)) or 'built-in only'}>"

    def resolve(self, model: str | Model) -> Resolved:
        """The route of a definition's model, given as `provider:name` or as an adapter bound to a name.

        Raises:
            UsageError: it is neither; the message guesses what was meant.
        """
        if isinstance(model, Model):
            if not getattr(model, "provider", ""):
                raise UsageError(f"{model!r} has no provider; set `provider = ...` in its class")
            if model.name is None:
                raise UsageError(
                    f"{model!r} is an adapter of many models; bind it to one: {type(model).__name__}(...).named('NAME')"
                )
            return Resolved(model.provider, model.name, model)
        provider, name = self._split(model)
        return Resolved(provider, name, self.find(provider, name))

    def names(self) -> tuple[str, ...]:
        """The models that were given by their whole name, `provider:name`."""
        return tuple(key for key in self._given if ":" in key)

    def find(self, provider: str, name: str, *, own: Model | None = None) -> Model | None:
        """The adapter of a route, bound to `name`; None if nothing is registered for it.

        `own` is the agent's own adapter, if its definition brings one: it answers for its own route, whatever is registered.
        """
        if own is not None and own.provider == provider:
            return own if own.name == name else own.named(name)
        if bound := self._bound.get((provider, name)):
            return bound
        if found := self._look_up(provider, name):
            self._bound[provider, name] = found if found.name == name else found.named(name)
        return self._bound.get((provider, name))

    def _look_up(self, provider: str, name: str) -> Model | None:
        for key in (f"{provider}:{name}", provider, "*"):
            if key in self._given:
                return self._given[key]
        if provider not in self._made and (make := BUILT_IN.get(provider) or installed(provider)):
            self._made[provider] = make()
        return self._made.get(provider)

    async def aclose(self) -> None:
        """Close every adapter once; one that fails does not keep the others open."""
        models = {id(m): m for m in (*self._given.values(), *self._made.values())}
        self._made.clear()
        self._bound.clear()
        errors: list[Exception] = []
        for model in models.values():
            try:
                await model.aclose()
            except Exception as error:
                errors.append(error)
        if errors:
            raise ExceptionGroup("closing the model adapters failed", errors)
        await trio.lowlevel.checkpoint()

    def _split(self, model: str) -> tuple[str, str]:
        if not isinstance(model, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"a model is a text like {EXAMPLE!r} or a Model, not {model!r}")
        provider, colon, name = model.partition(":")
        if colon and provider and name:
            return provider, name
        raise UsageError(f"{model!r} names no model; {self._guess(model.strip(':'))}")

    def _guess(self, text: str) -> str:
        names = {key.partition(":")[2]: key for key in self._given if ":" in key}
        if near := difflib.get_close_matches(text, names, n=1):
            return f"did you mean {names[near[0]]!r}?"
        if text in self._given or text in BUILT_IN or text in offered():
            return f"{text!r} is a provider: did you mean '{text}:NAME'?"
        for start, provider in _MAKERS_OF.items():
            if text.startswith(start):
                return f"did you mean '{provider}:{text}'?"
        return f"write provider and model with a colon between, such as {EXAMPLE!r}"


def no_adapter(provider: str, name: str) -> ModelError:
    """The failure of a request whose route nobody owns."""
    if provider in SHIPPED and provider not in offered():
        return ModelError(
            "NO_ADAPTER",
            f"the adapter for {provider!r} comes with callboard, whose installation here is older than its code and does not "
            "know it; install it again: `make setup` in a checkout, or `pip install` as before",
        )
    return ModelError(
        "NO_ADAPTER",
        f"there is no adapter for '{provider}:{name}'; pass one to System.open: models={{{provider!r}: ...}}",
    )


def _check(key: str, model: object) -> None:
    if not key or key.startswith(":") or key.endswith(":"):
        raise UsageError(f"{key!r} is no key for an adapter; use 'provider', {EXAMPLE!r} or '*'")
    if isinstance(model, type) and issubclass(model, Model):
        raise UsageError(f"models[{key!r}] is the class {model.__name__}; pass an instance: {model.__name__}(...)")
    if not isinstance(model, Model):
        raise UsageError(f"models[{key!r}] is {model!r}; pass an instance of a subclass of Model")
