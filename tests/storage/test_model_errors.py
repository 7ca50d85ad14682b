"""The error behind an HTTP answer: its code, when to come again, and headers that nobody should have sent."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.storage import ModelError


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "BAD_REQUEST"),
        (401, "AUTH"),
        (402, "QUOTA"),
        (403, "AUTH"),
        (404, "NOT_FOUND"),
        (408, "TIMEOUT"),
        (413, "CONTEXT_OVERFLOW"),
        (429, "RATE_LIMIT"),
        (500, "SERVER"),
        (529, "SERVER"),
    ],
)
def test_a_status_has_a_code(status: int, code: str) -> None:
    error = ModelError.from_http(status, b"no", {"X-Request-Id": "r"})
    assert (error.code, error.message, error.status, error.request_id) == (code, "no", status, "r")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "2"}, 2),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "9", "retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
        ({}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "9" * 400}, None),
        ({"retry-after": "\u00b2"}, None),
    ],
)
def test_when_to_come_again(headers: dict[str, str], seconds: float | None) -> None:
    assert ModelError.from_http(429, "", headers).retry_after_s == seconds


def test_a_date_is_counted_from_now() -> None:
    after = ModelError.from_http(429, "", {"retry-after": formatdate(time.time() + 100, usegmt=True)}).retry_after_s
    assert after is not None and 95 < after < 101


@given(st.text(alphabet=st.characters(max_codepoint=255)))
def test_no_header_breaks_it(text: str) -> None:
    after = ModelError.from_http(429, b"\xff", {"retry-after": text}).retry_after_s
    assert after is None or 0 <= after < 1e9
