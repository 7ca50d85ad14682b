"""The wire protocol: both ends in one test, without a socket; golden frames; whatever a stranger may send."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from exchanges import CALLS, ERRORS, FRAMES, RECORD, as_text, frames
from hypothesis import given
from hypothesis import strategies as st

from callboard.net.wire import METHODS, ClientEnd, ServerEnd
from callboard.net.wire import methods as m
from callboard.net.wire.client import Answered, Failed, StreamEnded, decode_result
from callboard.net.wire.server import MOST_MALFORMED, Call, Malformed, Note
from callboard.storage.errors import AgentDeleted, CallboardError, ServiceError, UsageError
from callboard.storage.messages import TextBlock


def ask(end: ClientEnd, **params: Any) -> str:
    return end.call("get", m.OnAgent(agent="a", **params))[1]


# -- both ends


@pytest.mark.parametrize("name", METHODS)
def test_a_call_and_its_answer_arrive_as_they_were(name: str) -> None:
    client, service = ClientEnd(), ServerEnd()
    params, value = CALLS[name]
    id, text = client.call(name, params)
    assert service.receive(text) == Call(id, METHODS[name], params)
    answer = client.receive(service.answer(id, value))
    assert isinstance(answer, Answered) and answer.id == id
    assert decode_result(name, answer.result) == value


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_c247_an_error_arrives_as_itself(error: CallboardError) -> None:
    failed = ClientEnd().receive(ServerEnd().fail(3, error))
    assert isinstance(failed, Failed) and failed.id == 3
    assert type(failed.error) is type(error)
    assert (str(failed.error), failed.error.__dict__) == (str(error), error.__dict__)


def test_an_error_of_a_newer_version_arrives_as_the_nearest_known() -> None:
    frame = {"code": -32010, "message": "no", "data": {"error": "AgentAsleep", "kinds": ["AgentNotFound", "UsageError"]}}
    failed = ClientEnd().receive(json.dumps({"jsonrpc": "2.0", "id": 1, "error": frame}))
    assert isinstance(failed, Failed) and type(failed.error).__name__ == "AgentNotFound"


def test_an_error_cannot_bring_methods_or_private_fields() -> None:
    data = {"error": "UsageError", "__class__": "x", "_secret": 1, "args": [1], "message": "other", "a b": 2, "agent": "a"}
    frame = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32010, "message": "no", "data": data}}
    failed = ClientEnd().receive(json.dumps(frame))
    assert isinstance(failed, Failed)
    assert (type(failed.error), str(failed.error), failed.error.agent) == (UsageError, "no", "a")
    assert set(failed.error.__dict__) == {"message", "agent", "turn", "step", "seq"}


def test_a_fault_of_the_service_says_nothing_of_itself() -> None:
    failed = ClientEnd().receive(ServerEnd().fail(1, None))
    assert isinstance(failed, Failed) and type(failed.error) is ServiceError and "its own log" in str(failed.error)


def test_notifications_both_ways() -> None:
    client, service = ClientEnd(), ServerEnd()
    assert service.receive(client.note("ack", m.Ack(stream=1, frames=3))) == Note("ack", m.Ack(stream=1, frames=3))
    page = client.receive(service.records(1, 7, 9, f"{RECORD},{RECORD}"))
    assert isinstance(page, m.Page) and (page.stream, page.upto, page.head) == (1, 7, 9)
    assert [bytes(record).decode() for record in page.records] == [RECORD, RECORD]
    assert client.receive(service.records(1, 7, 7, "")) == m.Page(1, 7, 7, [])
    ended = client.receive(service.ended(2, AgentDeleted("gone", agent="a")))
    assert isinstance(ended, StreamEnded) and (ended.stream, ended.error.agent) == (2, "a")
    assert client.receive('{"jsonrpc":"2.0","method":"news","params":{"of":"tomorrow"}}') is None


# -- golden frames


@pytest.mark.parametrize("name", frames())
def test_golden_frames_are_what_both_ends_make(name: str) -> None:
    golden, now = json.loads((FRAMES / f"{name}.json").read_text(encoding="utf-8")), frames()[name]
    assert holds(now, golden), f"a frame has changed, and every client there is will see it:\n{as_text(now)}"


def holds(now: Any, golden: Any) -> bool:
    """Whether everything golden is still there; fields may have been added."""
    if isinstance(golden, dict):
        was = cast("dict[str, Any]", golden)
        return all(key in now and holds(now[key], was[key]) for key in was)
    if isinstance(golden, list):
        return len(now) == len(golden) and all(map(holds, now, golden))  # pyright: ignore[reportUnknownArgumentType]
    return bool(now == golden)


@pytest.mark.parametrize("name", sorted(CALLS))
def test_golden_calls_and_answers_are_understood(name: str) -> None:
    call, answer = json.loads((FRAMES / f"{name}.json").read_text(encoding="utf-8"))
    assert ServerEnd().receive(json.dumps(call["frame"])) == Call(1, METHODS[name], CALLS[name][0])
    answered = ClientEnd().receive(json.dumps(answer["frame"], separators=(",", ":")))
    assert isinstance(answered, Answered) and decode_result(name, answered.result) == CALLS[name][1]


def test_every_method_has_golden_frames_and_no_file_is_left_over() -> None:
    assert {path.stem for path in FRAMES.glob("*.json")} == {*METHODS, "notifications", "errors"} == set(frames())


# -- what cannot be taken


@pytest.mark.parametrize(
    ("text", "id", "code", "says"),
    [
        ("{", None, -32700, "no JSON"),
        ("", None, -32700, "no JSON"),
        ("[]", None, -32600, "JSON-RPC"),
        ('{"jsonrpc":"2.0","id":1,"method":"get","params":' + "[" * 100_000, None, -32700, "no JSON"),
        ('{"id":4,"method":"get"}', 4, -32600, "jsonrpc"),
        ('{"jsonrpc":"1.0","id":4,"method":"get"}', 4, -32600, "1.0"),
        ('{"jsonrpc":"2.0","id":4}', 4, -32600, "no method"),
        ('{"jsonrpc":"2.0","id":4,"result":1}', 4, -32600, "no method"),
        ('{"jsonrpc":"2.0","id":"x","method":"gte","params":{}}', "x", -32601, "did you mean 'get'?"),
        ('{"jsonrpc":"2.0","id":4,"method":"get"}', 4, -32602, "agent"),
        ('{"jsonrpc":"2.0","id":4,"method":"get","params":[1]}', 4, -32602, "array"),
        ('{"jsonrpc":"2.0","id":4,"method":"get","params":{"agent":7}}', 4, -32602, "$.agent"),
        ('{"jsonrpc":"2.0","id":4,"method":"get","params":{"agent":"a","agnet":1}}', 4, -32602, "agnet"),
        ('{"jsonrpc":"2.0","method":"get","params":{"agent":"a"}}', None, -32600, "needs an id"),
        ('{"jsonrpc":"2.0","id":null,"method":"get","params":{"agent":"a"}}', None, -32600, "needs an id"),
        ('{"jsonrpc":"2.0","id":1.5,"method":"get","params":{"agent":"a"}}', None, -32600, "$.id"),
        ('{"jsonrpc":"2.0","id":true,"method":"get","params":{"agent":"a"}}', None, -32600, "$.id"),
        ('{"jsonrpc":"2.0","id":9,"method":"get","params":{"agent":"' + "x" * 200 + '"}}', 9, -32600, "send less"),
        (b"bytes", None, -32600, "binary"),
    ],
)
def test_c226_what_is_malformed_is_answered_with_its_id(text: str | bytes, id: object, code: int, says: str) -> None:
    refused = ServerEnd(max_message=200 if "xxx" in str(text) else 1_000_000).receive(text)
    assert isinstance(refused, Malformed) and not refused.close
    frame = json.loads(refused.reply)
    assert (frame["id"], frame["error"]["code"]) == (id, code)
    assert says in frame["error"]["message"]


def test_c226_the_fifth_in_a_row_closes_and_a_good_one_forgives() -> None:
    client, service = ClientEnd(), ServerEnd()
    for _ in range(MOST_MALFORMED - 1):
        assert isinstance(service.receive("{"), Malformed)
    assert isinstance(service.receive(ask(client)), Call)
    closes = [refused.close for _ in range(MOST_MALFORMED) if isinstance(refused := service.receive("{"), Malformed)]
    assert closes == [False, False, False, False, True]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)
near_misses = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | json_values,
        "id": json_values,
        "method": st.sampled_from([*METHODS, "ack", "forget"]) | json_values,
        "params": st.dictionaries(
            st.sampled_from(["agent", "content", "stream", "after", "types", "id", "limit"]), json_values, max_size=4
        )
        | json_values,
        "error": json_values,
        "result": json_values,
    },
)


@given(st.text() | st.binary() | near_misses.map(json.dumps))
def test_whatever_comes_is_a_value_and_never_a_throw(text: str | bytes) -> None:
    received = ServerEnd().receive(text)
    assert isinstance(received, Call | Note | Malformed)
    if isinstance(received, Malformed):
        assert isinstance(ClientEnd().receive(received.reply), Failed)


@given(st.text() | st.binary() | near_misses.map(json.dumps))
def test_whatever_a_service_sends_is_understood_or_a_service_error(text: str | bytes) -> None:
    try:
        ClientEnd().receive(text)
    except CallboardError as error:
        assert isinstance(error, ServiceError)


def test_a_result_of_another_shape_is_a_service_error() -> None:
    answer = ClientEnd().receive('{"jsonrpc":"2.0","id":1,"result":{"id":7}}')
    assert isinstance(answer, Answered)
    with pytest.raises(ServiceError, match="answered 'get' with something else"):
        decode_result("get", answer.result)


def test_blocks_cross_as_blocks() -> None:
    _, text = ClientEnd().call("followup", m.Send(agent="a", content=[TextBlock("x")], message_id="m"))
    received = ServerEnd().receive(text)
    assert isinstance(received, Call) and received.params.content == [TextBlock("x")]
