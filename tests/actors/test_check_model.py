"""`check_model` and the grammar: a sound adapter passes, and each rule is seen to be broken by an adapter that breaks it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from itertools import count
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from callboard.actors.models.model import Model, Prepared
from callboard.actors.testing import Reply, ScriptedModel, check_model
from callboard.actors.testing.grammar import Grammar
from callboard.storage import chunks as c
from callboard.storage.errors import ModelError
from callboard.storage.messages import Chunk, Failure, Request, TextBlock, ToolCallBlock, Usage, UsageChunk

HELLO: tuple[Chunk, ...] = (
    c.block_start(0, "text"),
    c.text_delta(0, "hello"),
    c.block_end(0),
    c.usage(output=1),
    c.finish("stop"),
)


class Sound(Model):
    """Keeps every rule; the ones below break one each."""

    provider = "sound"

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        said = request.messages[-1].text
        if said.startswith("fail"):
            raise ModelError.from_http(int(said.split()[-1]), b"no", {})
        for chunk in HELLO:
            await trio.lowlevel.checkpoint()
            yield chunk


async def broken_rules(model: Model, **options: Any) -> str:
    with pytest.raises(AssertionError) as caught:
        await check_model(model, "large", **options)
    return str(caught.value)


# -- what passes


async def test_a_sound_adapter_passes() -> None:
    await check_model(Sound(), "large")
    await check_model(Sound().named("large"), "large", failures={"fail with 429": "RATE_LIMIT", "fail with 500": "SERVER"})


@pytest.mark.parametrize(
    "reply",
    [
        Reply.text("hello", parts=3, reasoning="hm"),
        Reply.tools(("c1", "look", {"city": "Oslo"}), ("c2", "look", "{"), text="Let me look"),
        Reply.max_tokens("hel"),
        Reply.refusal("no"),
    ],
    ids=repr,
)
async def test_the_scripted_model_passes(reply: Reply) -> None:
    await check_model(ScriptedModel(lambda request: reply), "large")
    await check_model(
        ScriptedModel(lambda request: reply, paced=True, defaults={"max_tokens": 100}, context_window=1000), "large"
    )


async def test_a_model_that_answers_by_a_schema_is_held_to_it() -> None:
    await check_model(ScriptedModel(lambda request: Reply.output({"word": "hi"}), schema=True), "large")
    said = await broken_rules(ScriptedModel(lambda request: Reply.text("hi"), schema=True))
    assert "`prepare` says schema=True, and the answer is no JSON object: 'hi'" in said


# -- the grammar


@pytest.mark.parametrize(
    ("chunks", "why"),
    [
        (HELLO[:-1], "the stream ended without finish"),
        ((*HELLO[:3], HELLO[4]), "the stream told no usage"),
        ((*HELLO, c.usage(output=2)), "finish is the last chunk, and a usage came after it"),
        ((*HELLO, c.finish("stop")), "finish is the last chunk, and a finish came after it"),
        ((HELLO[0], *HELLO), "block 0 starts a second time"),
        ((c.block_start(0, TextBlock("he")), *HELLO[1:]), "block 0 starts with content in it"),
        ((c.block_start(0, ToolCallBlock("c1", "look", "{}")), *HELLO[2:]), "block 0 starts with content in it"),
        (HELLO[1:], "a text-delta is for block 0, which has not started"),
        ((*HELLO[:3], HELLO[1], *HELLO[3:]), "a text-delta is for block 0, which has ended"),
        ((HELLO[0], c.reasoning_delta(0, "hm"), *HELLO[2:]), "a reasoning-delta does not fit block 0, which is a text"),
        ((*HELLO[:3], *HELLO[2:]), "block 0 ends a second time"),
        (HELLO[2:], "block 0 ends and has not started"),
        ((*HELLO[:2], *HELLO[3:]), "finish comes while block 0 is open"),
        ((c.block_start(0, "tool-call"), c.tool_call_delta(0, id="c1"), *HELLO[2:]), "the call in block 0 has no id or no name"),
        ((*HELLO[:3], UsageChunk(Usage(output=-1)), HELLO[4]), "usage counts tokens and is never negative"),
        ((*HELLO[:4], c.finish("error")), "finish 'error' has no failure"),
        ((*HELLO[:4], c.finish("stop", failure=Failure("SERVER"))), "finish 'stop' brings a failure"),
        (("hello", *HELLO), "which is no sound chunk"),
        ((HELLO[0], c.text_delta(0, 3), *HELLO[2:]), "which is no sound chunk"),  # type: ignore[arg-type]
    ],
)
async def test_the_grammar(chunks: tuple[Any, ...], why: str) -> None:
    grammar = Grammar()
    for chunk in chunks:
        grammar.feed(chunk)
    assert [sentence for sentence in grammar.end() if why in sentence]
    assert why in await broken_rules(ScriptedModel(lambda request: Reply.chunks(chunks)))


def test_a_stream_that_keeps_the_grammar() -> None:
    grammar = Grammar()
    call = (c.block_start(1, "tool-call"), c.tool_call_delta(1, id="c1"), c.tool_call_delta(1, name="look"), c.block_end(1))
    for chunk in (*HELLO[:3], *call, *HELLO[3:]):
        grammar.feed(chunk)
    assert grammar.end() == [] and grammar.text == "hello"


# -- prepare


class Preparing(Sound):
    def __init__(self, prepare: Callable[[Request], Any]) -> None:
        self._prepare = prepare

    def prepare(self, request: Request) -> Prepared:
        answer: Prepared = self._prepare(request)
        return answer


def refuse(request: Request) -> Prepared:
    raise ModelError("BAD_REQUEST", "no such model")


async def later(request: Request) -> Prepared:
    return Prepared(request)


def change(request: Request) -> Prepared:
    for tool in request.tools:
        tool.schema["title"] = "changed"
    return Prepared(request)


NUMBERS = count(1)


WRONG: list[tuple[Callable[[Request], Any], str]] = [
    (refuse, "`prepare` refused a plain request for 'large': ModelError: no such model"),
    (later, "`prepare` is a plain function that answers Prepared(request, ...), not coroutine"),
    (lambda request: request, "`prepare` is a plain function that answers Prepared(request, ...), not Request"),
    (lambda request: Prepared(request, {"max_tokens": next(NUMBERS)}), "`prepare` is pure: for the same request it gave two"),
    (change, "`prepare` changed the request it was given"),
    (lambda request: Prepared(msgspec.structs.replace(request, model="other")), "`prepare` sent the request elsewhere"),
    (lambda request: Prepared(request, {"top_p": 1}), "the adapter's defaults name 'top_p', which is no setting"),
    (lambda request: Prepared(request, {"max_tokens": "many"}), "the adapter's defaults do not fit the settings"),
    (lambda request: Prepared(request, {"extra": {"a": object()}}), "what `prepare` answers cannot be written to a log"),
    (lambda request: Prepared(request, context_window=0), "context_window=0 is no number of tokens"),
]


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize(("prepare", "why"), WRONG)
async def test_prepare(prepare: Callable[[Request], Any], why: str) -> None:
    assert why in await broken_rules(Preparing(prepare))


# -- names, streams, endings


class Shared(Sound):
    """Its copies are itself."""

    def named(self, name: str) -> Shared:
        self.name = name
        return self


class Colon(Sound):
    provider = "sound:large"


class Iterating(Sound):
    """No generator: cannot be closed."""

    def stream(self, request: Request) -> AsyncIterator[Chunk]:
        class Iterator:
            def __init__(self) -> None:
                self.left = list(HELLO)

            def __aiter__(self) -> Iterator:
                return self

            async def __anext__(self) -> Chunk:
                if not self.left:
                    raise StopAsyncIteration
                return self.left.pop(0)

        return Iterator()


class Scoped(Sound):
    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        with trio.move_on_after(10):
            for chunk in HELLO:
                yield chunk


class Nursing(Sound):
    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        async with trio.open_nursery():
            for chunk in HELLO:
                yield chunk


class Throwing(Sound):
    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        yield HELLO[0]
        raise ConnectionResetError("gone")


class Failing(Sound):
    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        raise ModelError("AUTH", "set SOUND_API_KEY")
        yield HELLO[0]


class Forgetful(Sound):
    """Keeps a request's index on itself."""

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        self.index = 0
        for chunk in HELLO[:3]:
            self.index += 1
            yield chunk
        if self.index > 3:
            yield c.text_delta(self.index, "again")
        for chunk in HELLO[3:]:
            yield chunk


class Stubborn(Sound):
    """Goes on when it is closed."""

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        try:
            for chunk in HELLO:
                yield chunk
        except GeneratorExit:
            yield HELLO[-1]


class Swallowing(Sound):
    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled:
            return
        for chunk in HELLO:
            yield chunk


class Translating(Sound):
    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        for chunk in HELLO:
            try:
                await trio.lowlevel.checkpoint()
            except BaseException as error:
                raise ConnectionError("torn") from error
            yield chunk


class Shielding(Sound):
    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        with trio.CancelScope(shield=True):
            await trio.sleep(6)
        for chunk in HELLO:
            await trio.lowlevel.checkpoint()
            yield chunk


class Lingering(Sound):
    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        over = False
        try:
            for chunk in HELLO:
                yield chunk
            over = True
        finally:
            if not over:
                await trio.sleep(6)


class Silent(Sound):
    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        await trio.sleep_forever()
        yield HELLO[0]


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (Shared(), "`named` gives a copy that is bound to a model, and leaves the original as it is"),
        (Colon(), "`provider` is a text without a colon"),
        (Iterating(), "`stream` is an async generator: without aclose() a half-read stream cannot be closed"),
        (Scoped(), "a cancel scope or nursery is open across a `yield`"),
        (Nursing(), "a cancel scope or nursery is open across a `yield`"),
        (Throwing(), "raised ConnectionResetError: gone; failures of a provider are raised as ModelError"),
        (Failing(), "the answer to a question failed: AUTH: set SOUND_API_KEY"),
        (Forgetful(), "with two streams at once: a text-delta is for block 5, which has not started"),
        (Stubborn(), "the stream yields while it is closed: never catch GeneratorExit"),
        (Swallowing(), "cancelled before the first chunk: the stream ended quietly"),
        (
            Translating(),
            "cancelled before the first chunk: the answer to a question that is cancelled raised ConnectionError: torn",
        ),
        (
            Translating(),
            "cancelled after the first chunk: the answer to a question that is cancelled raised ConnectionError: torn",
        ),
        (Shielding(), "cancelled before the first chunk: that took more than 5 s"),
        (Lingering(), "closing the stream took more than 5 s"),
        (Silent(), "the answer to a question was not over in 60 s"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Model) else None,
)
async def test_a_broken_adapter_is_told_so(model: Model, why: str, autojump_clock: trio.testing.MockClock) -> None:
    assert why in await broken_rules(model)


async def test_a_failure_of_another_code_is_told() -> None:
    said = await broken_rules(Sound(), failures={"fail with 429": "SERVER", "hello": "SERVER"})
    assert "'fail with 429' has to fail with SERVER, and gave RATE_LIMIT" in said
    assert "'hello' has to fail with SERVER, and gave no failure" in said


async def test_the_sentences_come_at_once() -> None:
    said = await broken_rules(ScriptedModel(lambda request: Reply.chunks(HELLO[:2])))
    assert said.count("\n- ") == 2 and "without finish" in said and "no usage" in said
