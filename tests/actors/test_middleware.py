"""Stream middleware: chunks pass through plugins, and every generator is closed, outermost first."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, cast

import pytest

from callboard.actors.chains import Chains, NestedStream, failed_in_model
from callboard.actors.seams import Plugin, SeamContext
from callboard.storage import chunks as c
from callboard.storage.errors import ModelError, UsageError
from callboard.storage.messages import Chunk, Request, TextDelta

CTX = SeamContext(cast("Any", None))
"""Nothing here looks at it."""
REQUEST = Request("acme", "large")


class ModelStream:
    """A model's stream that says when it was closed."""

    def __init__(self, error: Exception | None = None) -> None:
        self.events: list[str] = []
        self.error = error

    async def __call__(self, request: Request) -> AsyncIterator[Chunk]:
        self.events.append(f"open {request.model}")
        try:
            yield c.text_delta(0, "a")
            yield c.text_delta(0, "b")
            if self.error is not None:
                raise self.error
        finally:
            self.events.append("closed model")


class Upper(Plugin):
    """Changes each delta, and says when it was closed."""

    def __init__(self, events: list[str], name: str = "upper") -> None:
        self.events, self.name = events, name

    async def stream(
        self, ctx: SeamContext, request: Request, next: Callable[[Request], AsyncIterator[Chunk]]
    ) -> AsyncIterator[Chunk]:
        try:
            async for chunk in next(request):
                yield TextDelta(chunk.index, chunk.text.upper()) if isinstance(chunk, TextDelta) else chunk
        finally:
            self.events.append(f"closed {self.name}")


async def texts(stream: AsyncIterator[Chunk]) -> list[str]:
    return [chunk.text async for chunk in stream if isinstance(chunk, TextDelta)]


async def test_a_stream_without_middleware_is_the_models_own() -> None:
    model = ModelStream()
    stream = Chains([Plugin()]).stream(CTX, REQUEST, model)
    assert not isinstance(stream, NestedStream)
    assert await texts(stream) == ["a", "b"]
    assert failed_in_model(stream, ValueError())


async def test_middleware_changes_the_chunks() -> None:
    model = ModelStream()
    stream = Chains([Upper(model.events)]).stream(CTX, REQUEST, model)
    assert await texts(stream) == ["A", "B"]


async def test_a_stream_left_half_read_is_closed_outermost_first() -> None:
    model = ModelStream()
    chains = Chains([Upper(model.events, "outer"), Upper(model.events, "inner")])
    stream = chains.stream(CTX, REQUEST, model)
    assert isinstance(stream, NestedStream)
    async with aclosing(stream):
        await anext(stream)
    assert model.events == ["open large", "closed outer", "closed inner", "closed model"]
    await stream.aclose()


async def test_a_failure_says_whose_it_is() -> None:
    error = ModelError("SERVER", "down")
    model = ModelStream(error)
    stream = Chains([Upper(model.events)]).stream(CTX, REQUEST, model)
    with pytest.raises(ModelError) as caught:
        await texts(stream)
    assert failed_in_model(stream, caught.value)

    class Broken(Plugin):
        async def stream(
            self, ctx: SeamContext, request: Request, next: Callable[[Request], AsyncIterator[Chunk]]
        ) -> AsyncIterator[Chunk]:
            yield await anext(next(request))
            raise ValueError("mine")

    model = ModelStream()
    stream = Chains([Broken()]).stream(CTX, REQUEST, model)
    assert isinstance(stream, NestedStream)
    with pytest.raises(ValueError, match="mine") as blamed:
        await texts(stream)
    assert not failed_in_model(stream, blamed.value)
    await stream.aclose()
    assert model.events[-1] == "closed model"


async def test_middleware_may_own_a_route_and_never_open_the_model() -> None:
    class Canned(Plugin):
        async def stream(
            self, ctx: SeamContext, request: Request, next: Callable[[Request], AsyncIterator[Chunk]]
        ) -> AsyncIterator[Chunk]:
            yield c.text_delta(0, "canned")

    model = ModelStream()
    stream = Chains([Canned()]).stream(CTX, REQUEST, model)
    assert await texts(stream) == ["canned"]
    assert model.events == []


async def test_middleware_that_is_no_generator_or_yields_no_chunk_is_named() -> None:
    class NoYield(Plugin):
        async def stream(self, ctx: SeamContext, request: Request, next: Any) -> Any:  # type: ignore[override]
            return next(request)

    class Texts(Plugin):
        async def stream(self, ctx: SeamContext, request: Request, next: Any) -> AsyncIterator[Any]:
            yield "text"

    class WrongRequest(Plugin):
        def stream(self, ctx: SeamContext, request: Request, next: Any) -> Any:
            return next("request")

    model = ModelStream()
    with pytest.raises(UsageError, match=r"NoYield\(\) gave a coroutine in stream; write an async generator"):
        Chains([NoYield()]).stream(CTX, REQUEST, model)
    with pytest.raises(UsageError, match=r"\(Texts\(\)\) yielded a str, which is no chunk"):
        await anext(Chains([Texts()]).stream(CTX, REQUEST, model))
    with pytest.raises(UsageError, match=r"WrongRequest\(\) handed on a str in stream, which takes Request"):
        Chains([WrongRequest()]).stream(CTX, REQUEST, model)


async def test_all_generators_are_closed_even_if_one_fails_to() -> None:
    class Bad(Plugin):
        async def stream(
            self, ctx: SeamContext, request: Request, next: Callable[[Request], AsyncIterator[Chunk]]
        ) -> AsyncIterator[Chunk]:
            try:
                async for chunk in next(request):
                    yield chunk
            finally:
                raise ValueError("in closing")

    model = ModelStream()
    stream = Chains([Bad()]).stream(CTX, REQUEST, model)
    assert isinstance(stream, NestedStream)
    await anext(stream)
    with pytest.raises(ValueError, match="in closing"):
        await stream.aclose()
    assert model.events == ["open large", "closed model"]
