"""Signed webhooks, after the Standard Webhooks specification: three headers, and an HMAC over id, time and body.

    webhook-id: the delivery's or message's id      webhook-timestamp: Unix seconds      webhook-signature: v1,<base64> [...]

The id says what is the same message sent again, the time keeps an old one from being played back, the signature says who sent it.
Pure: bytes and texts in and out.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping

from ...storage.errors import InputRefused, Unauthorized, UsageError

TOLERANCE_S = 300
"""How far the sender's clock may be off, and how old a request may be."""


def key_of(secret: str | bytes) -> bytes:
    """The key in a secret: `whsec_` and base64, as services show it, or any bytes.

    Raises:
        UsageError: what follows `whsec_` is no base64.
    """
    if isinstance(secret, bytes):
        return secret
    if not secret.startswith("whsec_"):
        return secret.encode()
    try:
        return base64.b64decode(secret[6:], validate=True)
    except binascii.Error:
        raise UsageError("the webhook's secret begins with whsec_, and what follows is no base64") from None


def signed_headers(key: bytes | None, id: str, time: int, body: bytes) -> dict[str, str]:
    """The headers of a request; without a key it has no signature."""
    headers = {"webhook-id": id, "webhook-timestamp": str(time)}
    if key is not None:
        headers["webhook-signature"] = f"v1,{_signature(key, id, str(time), body)}"
    return headers


def check(key: bytes, headers: Mapping[str, str], body: bytes, *, now: float) -> str:
    """The id of a request whose signature is right. `headers` have lower-case names.

    Raises:
        Unauthorized: it is not signed with this key, or too old.
        InputRefused: a header is missing.
    """
    try:
        id, time, given = headers["webhook-id"], headers["webhook-timestamp"], headers["webhook-signature"]
    except KeyError as missing:
        raise InputRefused(f"the request has no header {missing}; a signed webhook has three") from None
    wanted = _signature(key, id, time, body)
    right = False
    for each in given.split(" "):  # several while a secret is being changed; all are compared, so that time tells nothing
        right |= hmac.compare_digest(each.encode("utf-8", "surrogatepass"), f"v1,{wanted}".encode())
    if not right:
        raise Unauthorized("the webhook's signature is not made with this channel's secret")
    if not time.isdecimal() or abs(now - int(time)) > TOLERANCE_S:
        raise Unauthorized(f"the webhook is from another time ({time[:20]!r}); it may be {TOLERANCE_S} seconds old")
    return id


def _signature(key: bytes, id: str, time: str, body: bytes) -> str:
    signed = b".".join((id.encode("utf-8", "surrogatepass"), time.encode("utf-8", "surrogatepass"), body))
    return base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
