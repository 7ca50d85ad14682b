"""Definitions: what they hold, and the mistakes they find."""

from __future__ import annotations

import pickle
from collections.abc import AsyncIterator
from typing import Any, assert_type

import pytest
from msgspec import Struct

from callboard.actors.agent import OPTIONS, Agent
from callboard.actors.delegation import delegate
from callboard.actors.limits import DEFAULT_LIMITS, Limits
from callboard.actors.models.model import Model
from callboard.actors.seams import Plugin
from callboard.actors.values import Outcome
from callboard.storage import chunks
from callboard.storage.errors import ToolError, UsageError
from callboard.storage.events import Completed
from callboard.storage.messages import Chunk, Request, Settings


class NamedTool:
    """The least that a step can offer."""

    def __init__(self, name: str) -> None:
        self.name, self.description, self.schema = name, "", {"type": "object"}


class Trip(Struct):
    city: str


class Deps:
    """What tools of a test expect."""


class Acme(Model):
    """A model without a name."""

    provider = "acme"

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        yield chunks.finish("stop")


def sections(ctx: object) -> str:
    return "now"


def test_c108_tools_are_in_one_order_whatever_order_they_came_in() -> None:
    one, two, three = NamedTool("one"), NamedTool("two"), NamedTool("three")
    forward = Agent("a", tools=[one, two, three])
    backward = Agent("a", tools=[three, two, one])
    assert list(forward.toolbox) == ["one", "three", "two"] == list(backward.toolbox)
    assert forward.tools == backward.tools


def test_c108_two_tools_of_one_name_are_an_error_when_the_agent_is_built() -> None:
    with pytest.raises(UsageError, match=r"'a' has two tools named 'one'"):
        Agent("a", tools=[NamedTool("one"), NamedTool("one")])


def test_c103_an_agent_may_leave_the_model_to_a_seam() -> None:
    assert Agent("a").model is None


def test_replace_is_a_copy_with_changes() -> None:
    agent = Agent("a", model="openai:gpt-5", tools=[NamedTool("one")], stop=["end"], max_tokens=10, plugins=[])
    other = agent.replace(system="Be brief.", max_tokens=None)
    assert (agent.system, other.system, other.max_tokens) == ("", "Be brief.", None)
    assert (other.name, other.model, other.tools, other.stop) == (agent.name, agent.model, agent.tools, ("end",))
    assert other.plugins == ()
    with pytest.raises(UsageError, match="no option 'sytem'; did you mean 'system'"):
        agent.replace(sytem="x")


def test_an_agent_is_frozen() -> None:
    agent = Agent("a")
    with pytest.raises(UsageError, match=r"agent.replace\(system=...\)"):
        agent.system = "other"
    with pytest.raises(UsageError, match="frozen"):
        del agent.system


def test_repr_shows_what_is_not_default() -> None:
    agent = Agent("a", model="openai:gpt-5", tools=[NamedTool("two"), NamedTool("one")], output=Trip)
    assert repr(agent) == "Agent('a', model='openai:gpt-5', tools=[one, two], output=Trip)"
    assert "..." in repr(Agent("a", system="x" * 200))


def test_every_option_has_its_default_in_the_table() -> None:
    agent = Agent("a")
    assert {option: getattr(agent, option) for option in OPTIONS} == {**OPTIONS, "name": "a"}


def test_an_agent_travels_by_pickle() -> None:
    agent = pickle.loads(pickle.dumps(Agent("a", model="openai:gpt-5", context=[sections])))
    assert (agent.name, agent.model, agent.context) == ("a", "openai:gpt-5", (sections,))


def test_sampling_is_the_seed_of_a_request() -> None:
    agent = Agent("a", max_tokens=5, temperature=0.0, stop=["x"], effort="low", settings={"acme": {"k": 1}})
    assert agent.sampling == Settings(0.0, 5, ("x",), "low", {"acme": {"k": 1}})


def plain(city: str) -> str:
    return city


NAMED: dict[str, Any] = {"name": "a"}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "needs a name"),
    ({"name": None}, "name is a text, not None"),
    ({"name": "You plan trips.\nBe brief."}, "pass it as system="),
    ({"name": " a "}, "write 'a'"),
    ({"model": "gpt-5"}, "did you mean 'openai:gpt-5'"),
    ({"model": ":gpt-5"}, "did you mean 'openai:gpt-5'"),
    ({"model": "openai:"}, "did you mean 'openai:gpt-5'"),
    ({"model": Acme()}, r"model=Acme\(\).named\('large'\)"),
    ({"model": Acme}, r"give an instance: Acme\(\)"),
    ({"model": 5}, "is no model"),
    ({"system": None}, "give a text or a function"),
    ({"tools": plain}, r"is one object; give a list: tools=\[plain\]"),
    ({"tools": NamedTool("one")}, r"give a list: tools=\[one\]"),
    ({"tools": [plain]}, "plain function plain; decorate it with @tool"),
    ({"tools": [Agent("b")]}, r"holds the agent 'b'; wrap it: delegate\(agent\)"),
    ({"tools": ["lookup"]}, "'lookup', which is no tool"),
    ({"plugins": Plugin()}, r"one plugin; give a list: plugins=\[Plugin\(\)\]"),
    ({"plugins": [Plugin]}, r"give an instance: Plugin\(\)"),
    ({"plugins": [3]}, "which is no plugin"),
    ({"limits": {"parallel": 4}}, r"give Limits\(...\)"),
    ({"recovery": "ends"}, "did you mean 'end'"),
    ({"recovery": None}, "'continue', 'end'"),
    ({"after_error": "parc"}, "did you mean 'park'"),
    ({"max_tokens": 0}, "at least 1"),
    ({"stop": "end"}, r"give a list: stop=\['end'\]"),
    ({"formerly": "old"}, r"give a list: formerly=\['old'\]"),
    ({"formerly": [1]}, "texts only"),
    ({"context": sections}, "is one section; give a list"),
    ({"context": ["now"]}, "each section is a function"),
    ({"modle": "openai:gpt-5"}, "no option 'modle'; did you mean 'model'"),
    ({"qqqqqq": 1}, "there are name, model"),
]


@pytest.mark.parametrize(("options", "text"), WRONG, ids=lambda value: str(value)[:40])
def test_a_mistake_is_guessed_when_the_agent_is_built(options: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        Agent(**{**NAMED, **options})


def test_a_model_with_a_name_is_taken() -> None:
    model = Acme().named("large")
    assert Agent("a", model=model).model is model


def test_limits_have_the_documented_defaults() -> None:
    assert (DEFAULT_LIMITS.pending, DEFAULT_LIMITS.parallel, DEFAULT_LIMITS.chunk_gap_s) == (10_000, 8, 60)
    assert Limits(pending=0).pending == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("pending", -1),
        ("parallel", 0),
        ("boundary", 0),
        ("tool_timeout", float("nan")),
        ("depth", "4"),
        ("depth", True),
        ("depth", 1.5),
    ],
)
def test_a_limit_that_cannot_be_names_its_field(field: str, value: Any) -> None:
    with pytest.raises(UsageError, match=rf"Limits\({field}="):
        Limits(**{field: value})


def test_a_delegation_looks_like_a_tool() -> None:
    researcher = Agent("researcher", model="openai:gpt-5")
    tool = delegate(researcher, restarts=(3, 60))
    assert (tool.name, tool.mode, tool.agent, tool.background) == ("researcher", "parallel", researcher, False)
    assert list(tool.schema["properties"]) == ["task"]
    assert tool.decode('{"task": "look"}') == {"task": "look"}
    assert Agent("a", tools=[tool]).toolbox["researcher"] is tool


def test_a_delegation_that_cannot_be_says_why() -> None:
    researcher: Any = Agent("a researcher")
    with pytest.raises(UsageError, match="cannot be named 'a researcher'"):
        delegate(researcher)
    assert delegate(researcher, name="research", description="Ask.").description == "Ask."
    not_an_agent: Any = "researcher"
    with pytest.raises(UsageError, match="needs an Agent"):
        delegate(not_an_agent)
    with pytest.raises(UsageError, match="no pair"):
        delegate(researcher, name="r", restarts=(-1, 60))


@pytest.mark.parametrize(
    "arguments", ["", "{}", "[]", '{"task": 5}', '{"task": "x", "more": 1}', "not json", '{"task": "\ud800"}']
)
def test_arguments_that_are_no_task_tell_the_model_what_to_do(arguments: str) -> None:
    with pytest.raises(ToolError, match="Call it again with one argument, task") as caught:
        delegate(Agent("a")).decode(arguments)
    assert caught.value.code == "INVALID_ARGUMENTS"


def test_p12_output_and_deps_are_known_to_the_type_checkers() -> None:
    planner: Agent[Deps, Trip] = Agent("planner", output=Trip, deps=Deps)
    assert_type(Agent("planner", output=Trip, deps=Deps), Agent[Deps, Trip])
    assert_type(Agent("plain"), Agent[Any, str])
    assert_type(Outcome[Trip](agent="a", turn=1, reason=Completed(), output=Trip("Oslo")).result(), Trip)
    assert_type(planner.replace(system="x"), Agent[Deps, Trip])
    assert (planner.output, planner.deps) == (Trip, Deps)
