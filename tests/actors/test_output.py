"""The output of a definition: which shapes there are, what the model is shown of them, and what is refused when it is built."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pytest
from helpers import make, scripted

from callboard.actors.agent import Agent
from callboard.actors.output import Output
from callboard.actors.tools.tool import tool
from callboard.storage.errors import ToolError, UsageError


class Trip(msgspec.Struct):
    """A journey."""

    city: str
    nights: int = 1


class Tree(msgspec.Struct):
    below: list[Tree]


class Journey(msgspec.Struct):
    trips: list[Trip]


@dataclass
class Plan:
    city: str


class Note(TypedDict):
    text: str


class Choice(msgspec.Struct, tag=True):
    value: int


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@pytest.mark.parametrize(
    ("shape", "text", "value"),
    [
        (Trip, '{"city":"Oslo"}', Trip("Oslo", 1)),
        (Plan, '{"city":"Oslo"}', Plan("Oslo")),
        (Note, '{"text":"hi"}', {"text": "hi"}),
        (Tree, '{"below":[{"below":[]}]}', Tree([Tree([])])),
        (Journey, '{"trips":[{"city":"Oslo","nights":2}]}', Journey([Trip("Oslo", 2)])),
        (SCHEMA, '{"city":"Oslo","more":1}', {"city": "Oslo", "more": 1}),
    ],
)
def test_shapes(shape: Any, text: str, value: Any) -> None:
    output = Output("planner", shape)
    assert output.decode(text) == value
    assert output.schema["type"] == "object"
    assert output.why_not(text) is None
    assert output.why_not("3") is not None
    assert output.why_not(" ") == "there is no answer"
    assert output.why_not("hello") is not None


def test_the_schema_is_that_of_the_type() -> None:
    assert Output("planner", Trip).schema == {
        "title": "Trip",
        "description": "A journey.",
        "type": "object",
        "properties": {"city": {"type": "string"}, "nights": {"type": "integer", "default": 1}},
        "required": ["city"],
    }
    assert set(Output("planner", Journey).schema["$defs"]) == {"Trip"}
    assert set(Output("planner", Tree).schema["$defs"]) == {"Tree"}, "it holds itself"
    assert Output("planner", SCHEMA).schema == SCHEMA


def test_a_schema_by_hand_is_checked_all_the_way_down() -> None:
    output = Output("planner", SCHEMA)
    assert output.why_not('{"city":3}') == "expected string at `$.city`, got integer"
    assert output.why_not("{") is not None


def test_the_tool_says_what_is_wrong() -> None:
    answer = Output("planner", Trip).tool
    assert answer.name == "answer" and answer.schema == Output("planner", Trip).schema
    with pytest.raises(ToolError, match=r"no valid Trip: Object missing required field `city`\. Call answer again") as caught:
        answer.decode("")
    assert caught.value.code == "INVALID_ARGUMENTS"


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        (int, "is no object; put it in a field"),
        (list[Trip], "is no object; put it in a field"),
        ({"type": "array"}, "is no object; put it in a field"),
        ({"type": "object", "not": {}}, r"output= of agent 'planner': \$ uses 'not'"),
        ("a trip", "is no type; give a Struct, dataclass, TypedDict or JSON schema"),
        (object, "a type that JSON cannot carry"),
    ],
)
def test_a_shape_that_cannot_be_is_refused_when_the_agent_is_built(shape: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        Agent("planner", model="openai:gpt-5", output=shape)


def test_a_tool_of_the_answers_name_is_refused() -> None:
    @tool
    async def answer(text: str) -> str:
        """Mine."""
        return text

    assert Agent("planner", tools=[answer]).typed is None
    with pytest.raises(UsageError, match=r"has output=, whose tool is named 'answer', and a tool of that name"):
        Agent("planner", tools=[answer], output=Trip)


def test_an_agent_with_an_output_is_copied_and_travels() -> None:
    agent: Agent[Any, Trip] = Agent("planner", model="openai:gpt-5", output=Trip)
    assert agent.replace(system="Be brief.").output is Trip
    again = pickle.loads(pickle.dumps(agent))
    assert again.output is Trip and again.typed.schema == Output("planner", Trip).schema
    assert make(scripted(), output=Choice).typed is not None
