"""The cookie of the page: what a browser holds instead of a token.

Scripts of the page cannot read it, other sites cannot make a browser send it, and it is no token: it is a time, signed with a key
that the token's digest is, good for some hours and for nothing but this service. It needs no memory: it holds over a restart,
and is worth nothing once the token has been taken out of the service's list.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from itertools import islice

NAME = "callboard"
LASTS_S = 12 * 3600
MOST = 20


def mint(key: bytes, now: float) -> str:
    """A cookie's value for the holder of this token's digest."""
    return f"{int(now)}.{_signed(key, str(int(now)))}"


def fits(value: str, key: bytes, now: float) -> bool:
    """Whether it was minted with this key, and not too long ago."""
    issued, _, signature = value.partition(".")
    right = hmac.compare_digest(_signed(key, issued).encode(), signature.encode("latin-1", "replace"))
    return right and is_fresh(value, now)


def is_fresh(value: str, now: float) -> bool:
    """Whether it says that it was minted not too long ago; no other one is worth anything."""
    issued = value.partition(".")[0]
    return issued.isascii() and issued.isdecimal() and len(issued) <= 12 and -60 <= now - int(issued) <= LASTS_S


def found_in(header: str) -> Iterator[str]:
    """The values of our cookies in a request's header, some at most, since each costs work. Services on other ports of a machine
    share its cookies, so there may be several; the name says the port."""
    named = (part.strip().partition("=") for part in header.split(";"))
    return islice((value for name, _, value in named if name == NAME or name.startswith(f"{NAME}-")), MOST)


def _signed(key: bytes, issued: str) -> str:
    return hmac.new(key, f"callboard page {issued}".encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()
