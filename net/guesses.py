"""Guesses: how many wrong tokens an address may try, and how long it then waits.

Each wrong token of an address is a debt that time pays off, one after the other. Whoever owes as many as are allowed is let in
by no token until one is paid, also not by a right one, or guessing would go on at full speed. Addresses are apart, so what one
does never keeps another one out. A token that has come in from an address goes on coming in from there: many may share it (behind
a router, a proxy, a container's network), and one of them who guesses must not be able to keep the others out. For the same
reason a wrong token that is tried again is no guess: a client with an old one, which asks every second, would be in the way of
all who are new at its address. Of an address is kept one number, and of addresses and tokens a bounded many: past that the one
that has been quiet longest starts anew, which gives nobody more than a fresh address has anyway.

Behind a proxy all clients come from its address. So that they are apart there, too, a proxy that is known is believed when it
says in `X-Forwarded-For` for whom it asks; anybody else could say there what he likes.
"""

from __future__ import annotations

import ipaddress
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..storage.errors import UsageError

ADDRESSES = 4096
"""Of how many addresses is known what they owe, and of how many tokens from where they came in, or were tried in vain."""
THIS_MACHINE = ("127.0.0.0/8", "::1")
"""Proxies that are believed by default: whoever runs there could come without one."""

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Networks = Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network]
_WITH_PORT = re.compile(r"\[(.+)\](?::\d+)?|([^:]+):\d+")


class Guesses:
    """What addresses owe."""

    def __init__(self, *, allowed: int = 20, each_s: float = 3, now: Callable[[], float] = time.monotonic) -> None:
        """`allowed` wrong tokens at once (0: none is looked at), one more each `each_s` seconds."""
        self._allowed, self._each_s, self._now = allowed, each_s, now
        self._paid: OrderedDict[str, float] = OrderedDict()
        """When an address will owe nothing any more."""
        self._let_in: OrderedDict[tuple[str, bytes], None] = OrderedDict()
        """Which tokens have come in from where, by their digests."""
        self._in_vain: OrderedDict[tuple[str, bytes], None] = OrderedDict()
        """Which were wrong."""
        self.wrong = self.refused = 0

    def wait_for(self, client: str) -> float:
        """Seconds until the client may try a token; 0: now."""
        now = self._now()
        owed_s = max(self._paid.get(client, now), now) - now
        return max(0.0, owed_s - (self._allowed - 1) * self._each_s)

    def count(self, client: str, tokens: Iterable[bytes]) -> None:
        """The client tried the tokens of these digests, and all were wrong. Those that it had tried before cost it nothing."""
        now, guesses = self._now(), 0
        for token in tokens:
            self.wrong += 1
            guesses += (client, token) not in self._in_vain
            _keep(self._in_vain, (client, token), None)
        if guesses:
            _keep(self._paid, client, max(self._paid.get(client, now), now) + guesses * self._each_s)

    def remember(self, client: str, token: bytes) -> None:
        """The client came in by the token of this digest."""
        _keep(self._let_in, (client, token), None)

    def knows(self, client: str, token: bytes) -> bool:
        """Whether it came in by this token before."""
        return (client, token) in self._let_in

    def statistics(self) -> dict[str, int]:
        """Wrong tokens so far, tokens that came while their address had to wait, and addresses that are known."""
        return {"wrong": self.wrong, "refused": self.refused, "addresses": len(self._paid)}


def _keep(kept: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    """As the newest of a bounded many."""
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > ADDRESSES:
        kept.popitem(last=False)


def networks(proxies: Sequence[str]) -> Networks:
    """Addresses and networks (`10.0.0.0/8`) of proxies.

    Raises:
        UsageError: one is neither.
    """
    try:
        return [ipaddress.ip_network(proxy, strict=False) for proxy in proxies]
    except ValueError as error:
        raise UsageError(f"{error}; name a proxy by its address, as in 10.0.0.1 or 10.0.0.0/8") from error


def client_of(peer: str, forwarded: str, proxies: Networks) -> str:
    """For whom a request came, for counting: the peer, or whom the last proxy that is known names. Of an IPv6 address the network
    of 64 bits, all of which one customer has."""
    address, said = _parsed(peer), forwarded.split(",")
    while address is not None and said and any(address in proxy for proxy in proxies):
        before = _parsed(said.pop())
        if before is None:
            break
        address = before
    if address is None:
        return peer
    return str(address) if address.version == 4 else str(ipaddress.ip_network((address, 64), strict=False))


def _parsed(text: str) -> _Address | None:
    """An address, also with a port; one of IPv4 that is written as one of IPv6 is one of IPv4. A zone, which may be any text, is
    no part of it."""
    text = text.strip()
    found = _WITH_PORT.fullmatch(text)
    try:
        address = ipaddress.ip_address((text if found is None else found[1] or found[2]).partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
