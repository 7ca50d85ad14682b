"""The canonical form of a request: fixtures that must never change, and what it must not depend on."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import msgspec

from callboard.storage.digest import header_digest, header_line, message_line, request_digest
from callboard.storage.messages import (
    AgentSource,
    Header,
    Image,
    Message,
    ModelSource,
    ReasoningBlock,
    Settings,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolSource,
    ToolSpec,
)

ECHO = ToolSpec("echo", "Says it again.", {"type": "object", "properties": {"text": {"type": "string"}}})
ADD = ToolSpec("add", "Adds.", {"properties": {"a": {"type": "integer"}}, "type": "object"})
PLAIN = Header("acme", "large")
FULL = Header(
    "acme", "large", Settings(0.5, 1000, ("END",), "low", {"acme": {"b": 1, "a": 2}}), ("max_tokens",), "Be kind.", (ADD, ECHO)
)
TALK = (
    Message("m1", "user", (TextBlock("Oslo? ø—😀"), Image("image/png", blob="00ff")), AgentSource("other")),
    Message(
        "m2",
        "assistant",
        (
            ReasoningBlock("hm", "sig"),
            TextBlock("Let me see.", {"k": [1, 2.5, None]}),
            ToolCallBlock("c1", "echo", '{"text": "x"}'),
        ),
        ModelSource("acme", "large"),
    ),
    Message("result:7", "tool", (ToolResultBlock("c1", (TextBlock("x"),)),), ToolSource("c1")),
)


def test_c112_the_lines_of_a_small_request_are_as_written_down() -> None:
    assert message_line(Message("m1", "user", (TextBlock("hi"),))) == (
        b'{"id":"m1","role":"user","content":[{"type":"text","text":"hi"}]}\n'
    )
    assert header_line(PLAIN) == b'{"provider":"acme","model":"large"}\n'


def test_c112_digests_of_fixtures() -> None:
    assert request_digest((), PLAIN) == "6f38985f03fae77f35fbcdd6ce6204ebc772ff420f2eab4cf7f8ee1645f6af72"
    assert request_digest(TALK, PLAIN) == "0a8dcdbdc66f62fa61e9f4d558b6ddfe282f62e85f0bff21d00ded590983a9db"
    assert request_digest(TALK, FULL) == "9e3661317c71bde167f9660f01f87a3421fac8602212c5cc229696a2eb8be79f"
    assert header_digest(FULL) == "b4ec3565438405d98818154ba7ab11d080e887245d80314e8bd3f5ce989fbde0"


def test_c112_the_digest_is_the_plain_sha256_of_the_lines() -> None:
    form = b"".join(map(message_line, TALK)) + header_line(FULL)
    assert request_digest(TALK, FULL) == hashlib.sha256(form).hexdigest()


def test_c112_the_order_of_dictionaries_and_tools_does_not_matter() -> None:
    turned = msgspec.structs.replace(
        FULL,
        settings=msgspec.structs.replace(FULL.settings, extra={"acme": {"a": 2, "b": 1}}),
        tools=(ECHO, msgspec.structs.replace(ADD, schema={"type": "object", "properties": {"a": {"type": "integer"}}})),
    )
    assert header_digest(turned) == header_digest(FULL)


def test_c098_a_header_has_one_digest_before_and_after_the_log() -> None:
    fresh = msgspec.structs.replace(FULL, settings=Settings(temperature=1, stop=("a",)))
    read = msgspec.msgpack.decode(msgspec.msgpack.encode(fresh), type=Header)
    assert header_digest(fresh) == header_digest(read)


def test_c098_what_was_defaulted_is_part_of_the_digest() -> None:
    assert header_digest(msgspec.structs.replace(FULL, defaulted=())) != header_digest(FULL)


def test_c112_another_process_with_another_hash_seed_computes_the_same() -> None:
    code = (
        "from callboard.storage.digest import *; from callboard.storage.messages import *\n"
        "print(request_digest((), Header('acme', 'large')))"
    )
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": "7"}, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == request_digest((), PLAIN)
