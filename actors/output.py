"""Typed output: what an agent with `output=` has to answer, how it is told, and what its answer is worth.

The turn of such an agent completes only with a valid value. A provider that answers by a schema is given it, and its text is the
value; any other is offered a tool more, `answer`, whose arguments are the value and whose call concludes the turn. What does not
fit is an error that the model reads: the tool's result, or one more message. After `Limits.output_retries` of them the turn ends
`OUTPUT_INVALID`.

The value is no record of its own. It is the arguments of the call that concluded the turn's last step, or that step's text; so
whoever has the log has the value, and reads it by whatever definition is there then. All here is pure.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from ..storage.errors import ModelError, ToolError, UsageError
from ..storage.folds.position import CallState, Position
from ..storage.messages import Message, PluginSource, Request, TextBlock, ToolCallBlock, ToolResultBlock, ToolSpec
from .answers import ToolDefinition
from .json_schema import check_schema, violation
from .tools.output import ToolOutput
from .tools.tool import Tool

ANSWER = "answer"
"""The tool that concludes a turn with a value."""
OUTPUT_SOURCE = "output"
"""The source of messages that tell the model what is wrong with its answer."""
OUTPUT_INVALID = "OUTPUT_INVALID"

_DESCRIPTION = "Give your answer. Call it once, alone, when you are done: the turn ends with it."


class Output:
    """The shape of an agent's answer: its schema, and the way from a text to a value."""

    __slots__ = ("_decoder", "name", "schema", "tool")

    def __init__(self, agent: str, shape: Any) -> None:
        if isinstance(shape, Mapping):
            self.name, self.schema = "the output", dict(cast("Mapping[str, Any]", shape))
            check_schema(self.schema, where=f"output= of agent {agent!r}")
            self._decoder = None
        else:
            self.name, self.schema = getattr(shape, "__name__", str(shape)), _schema_of(agent, shape)
            self._decoder = msgspec.json.Decoder(shape)
        _check_root(agent, shape, self.schema)
        self.tool: Tool[..., Any] = Tool(
            _accept, _Value(self), name=ANSWER, description=_DESCRIPTION, mode="parallel", replay="safe"
        )

    def __repr__(self) -> str:
        return f"<Output {self.name}>"

    def decode(self, text: str) -> Any:
        """The value in a text.

        Raises:
            ValueError: it holds none; the error says where it does not fit.
        """
        try:
            if self._decoder is not None:
                return self._decoder.decode(text)
            value = msgspec.json.decode(text)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise ValueError(str(error)) from error
        why = violation(value, self.schema)
        if why is not None:
            raise ValueError(why)
        return value

    def why_not(self, text: str) -> str | None:
        """What is wrong with a text as the answer; None if it is a value."""
        if not text.strip():
            return "there is no answer"
        try:
            self.decode(text)
        except ValueError as error:
            return str(error)
        return None


class _Value:
    """The arguments of the tool `answer`: the value itself, not fields of a signature."""

    def __init__(self, output: Output) -> None:
        self._output, self.schema = output, output.schema

    def decode(self, text: str) -> dict[str, Any]:
        try:
            return {"value": self._output.decode(_arguments(text))}
        except ValueError as error:
            why = (
                f"The answer is no valid {self._output.name}: {error}. Call {ANSWER} again with one object that fits its schema."
            )
            raise ToolError(why, code="INVALID_ARGUMENTS") from error

    def bind(self, context: Any, arguments: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        return [], {}


async def _accept() -> ToolOutput:
    return ToolOutput("Accepted.", concludes=True)


def _arguments(text: str) -> str:
    return text if text.strip() else "{}"  # as for every tool: no text at all means no arguments


# -- the definition


def make_output(agent: str, shape: Any, tools: Mapping[str, ToolDefinition]) -> Output | None:
    """The checked form of `Agent(output=)`; None for an agent that answers with text.

    Raises:
        UsageError: JSON cannot carry such a value, it is no object, or a tool has the name that the answer needs.
    """
    if shape is None:
        return None
    if ANSWER in tools:
        raise UsageError(
            f"agent {agent!r} has output=, whose tool is named {ANSWER!r}, and a tool of that name; give yours another: name=..."
        )
    return Output(agent, shape)


def _schema_of(agent: str, shape: Any) -> dict[str, Any]:
    generic = typing.get_origin(shape) is not None
    if not generic and not isinstance(shape, type | types.UnionType):
        raise UsageError(f"output={shape!r} of agent {agent!r} is no type; give a Struct, dataclass, TypedDict or JSON schema")
    try:
        (root,), definitions = msgspec.json.schema_components([shape], ref_template="#/$defs/{name}")
    except Exception as error:
        reason = str(error).strip().rpartition("\n")[2]
        raise UsageError(f"output= of agent {agent!r} is a type that JSON cannot carry: {reason}") from error
    own: str = root.get("$ref", "").rpartition("/")[2]
    if not own:
        return root
    if f"#/$defs/{own}".encode() in msgspec.json.encode(definitions):
        return {**definitions[own], "$defs": definitions}  # it holds itself
    schema = definitions.pop(own)
    return {**schema, "$defs": definitions} if definitions else schema


def _check_root(agent: str, shape: Any, schema: Mapping[str, Any]) -> None:
    """Arguments of a tool, and what providers take as a schema, is one object."""
    if schema.get("type") != "object":
        raise UsageError(
            f"output={shape!r} of agent {agent!r} is no object; put it in a field: class Answer(msgspec.Struct): value: ..."
        )


def offered(tools: tuple[ToolDefinition, ...], output: Output | None) -> tuple[ToolDefinition, ...]:
    """The tools of a step, with the one that answers."""
    return tools if output is None else (*tools, output.tool)


def refuse_clash(tools: Iterable[ToolDefinition], output: Output | None) -> None:
    """Plugins may add tools; none by the name that the answer needs.

    Raises:
        UsageError: one did.
    """
    if output is not None and any(tool.name == ANSWER for tool in tools):
        raise UsageError(f"a plugin offers a tool named {ANSWER!r}, which is that of output=; let it use another name")


def with_tool(request: Request, output: Output) -> Request:
    """The request for a provider that does not answer by a schema: the tool instead."""
    tools = tuple(sorted((*request.tools, ToolSpec(ANSWER, _DESCRIPTION, output.schema)), key=lambda tool: tool.name))
    return msgspec.structs.replace(request, tools=tools, output=None)


# -- the value


def answer_call(calls: Iterable[CallState]) -> str | None:
    """The arguments of the call that concluded a step with a value."""
    concluding = [call for call in calls if call.name == ANSWER and call.concludes]
    return _arguments(concluding[-1].effective or concluding[-1].arguments) if concluding else None


def value_text(output: Output, at: Position) -> str:
    """The value of the last step as JSON; empty if there is none."""
    text = candidate(at)
    return text if output.why_not(text) is None else ""


def answer_text(output: Output | None, at: Position) -> str:
    """What the turn says: of an agent with an output its value as JSON, else (also on the way to it) the last text."""
    return at.text if output is None else value_text(output, at) or at.text


def missing(output: Output | None, at: Position) -> str | None:
    """Why the last step does not end the turn with a value; None if it does, or none is due."""
    if output is None or at.step == 0:
        return None
    return output.why_not(candidate(at))


def candidate(at: Position) -> str:
    """What stands for the value after the last step: the arguments of the call that concluded it, or its text."""
    called = answer_call(at.calls)
    return at.said if called is None else called


# -- what the model is told


def tries(at: Position, entries: Iterable[tuple[int, Message]]) -> int:
    """How often in the open turn the model's answer was refused, by a result or by a message."""
    refused, answers = 0, set[str]()
    for seq, message in entries:
        if seq <= at.start_seq:
            continue
        refused += message.source == PluginSource(OUTPUT_SOURCE)
        for block in message.content:
            if isinstance(block, ToolCallBlock) and block.name == ANSWER:
                answers.add(block.id)
            refused += isinstance(block, ToolResultBlock) and block.is_error and block.call_id in answers
    return refused


def correction_message(id: str, output: Output, why: str, *, by_schema: bool) -> Message:
    """The message that says what is wrong with an answer that was no value."""
    if by_schema:
        text = (
            f"Your answer is no valid {output.name}: {why}. Answer with one JSON object that fits the schema, and nothing else."
        )
    else:
        text = f"No valid {output.name} came ({why}). Call the tool {ANSWER} with it, as one object that fits its schema."
    return Message(id, "user", (TextBlock(text),), PluginSource(OUTPUT_SOURCE))


def invalid(output: Output, why: str, retries: int) -> ModelError:
    """The failure of a turn whose model gave no value."""
    return ModelError(OUTPUT_INVALID, f"the model gave no valid {output.name}: {why} (Limits.output_retries={retries})")
