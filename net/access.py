"""Who may do what: bearer tokens with scopes and an id prefix, and what holds where there are none.

A token is known here by its digest alone: it is in no message, no log and no repr, and a guess is compared with every digest in
the same time; an address that guesses much is not listened to for a while (see `guesses`). Without tokens anybody who reaches the
port may do anything; so then only loopback is bound, and a page of another site, which a browser on this machine may have open,
is refused by its Origin.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import math
import os
import re
import time
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from ..storage.errors import Unauthorized, UsageError
from . import cookies
from .guesses import THIS_MACHINE, Guesses, client_of, networks
from .wire.methods import BEARER, Scope

SCOPES: tuple[Scope, ...] = ("read", "send", "admin")
_TOKEN = re.compile(r"[A-Za-z0-9._~!$'*+^`|#%&-]+")
"""What a token may be made of: what a header and the name of a subprotocol can both carry."""

VARIABLE = "CALLBOARD_TOKENS"
_NO_TOML = 'is no TOML%s; it needs a table for each token: ["TOKEN"] and then scopes = ["read"]'
_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*://[^/?#\s]+|null)/?")
_FORWARDED = b"x-forwarded-for"
_LINE = re.compile(r"at line \d+")

Tokens = Mapping[str, Mapping[str, Any]]


class Grant(Struct, frozen=True, forbid_unknown_fields=True):
    """What a token allows: scopes (`admin` holds the others), on agents whose ids begin with `prefix`."""

    scopes: tuple[Scope, ...] = ("read",)
    prefix: str = ""

    def check_scope(self, scope: Scope, method: str) -> None:
        """Make sure that the scope is granted.

        Raises:
            Unauthorized: it is not.
        """
        if scope not in self.scopes and "admin" not in self.scopes:
            raise Unauthorized(f"{method!r} needs the scope {scope!r}, and this token has {', '.join(self.scopes) or 'none'}")

    def check_agent(self, agent: str) -> None:
        """Make sure that the id is within the prefix; whether such an agent exists is not said.

        Raises:
            Unauthorized: it is not.
        """
        if not agent.startswith(self.prefix):
            raise Unauthorized(f"this token is for agents whose ids begin with {self.prefix!r}, not for {agent!r}", agent=agent)

    def narrow(self, prefix: str) -> str | None:
        """The part of `prefix` that is granted; None if there is none."""
        if prefix.startswith(self.prefix):
            return prefix
        return self.prefix if self.prefix.startswith(prefix) else None


EVERYTHING = Grant(("read", "send", "admin"))
"""What everybody may do where there are no tokens."""


class Known(Struct, frozen=True):
    """A token of the service: its digest, and what it allows."""

    digest: bytes
    grant: Grant


class Throttled(Unauthorized):
    """No token counts for now: too many wrong ones came from this address. `wait_s`: when to try again."""

    def __init__(self, wait_s: float) -> None:
        self.wait_s = math.ceil(wait_s)
        super().__init__(f"too many wrong tokens came from your address; try again in {self.wait_s} s")


class Access:
    """The tokens of a service; None: there are none, and everybody may do everything."""

    def __init__(
        self,
        tokens: Tokens | str | os.PathLike[str] | None,
        *,
        origins: Sequence[str] = (),
        proxies: Sequence[str] = THIS_MACHINE,
        guesses: Guesses | None = None,
    ) -> None:
        """Read the tokens: a mapping, or a TOML file of the same shape. `proxies` say for whom they ask.

        Raises:
            UsageError: they cannot be read (the text does not hold them), or an origin or a proxy is none.
        """
        where = ""
        if isinstance(tokens, str | os.PathLike):
            where, tokens = f"{tokens}: ", _read(Path(tokens))
        self._known: list[Known] | None = None
        if tokens is not None:
            named = [(f"{where}token {number}", token) for number, token in enumerate(tokens, 1)]
            self._known = [Known(_digest(token), _grant(which, token, tokens[token])) for which, token in named]
        self._origins = frozenset(map(_origin, origins))
        self._proxies, self.guesses = networks(proxies), guesses or Guesses()

    @property
    def open(self) -> bool:
        """Whether anybody may come in."""
        return self._known is None

    def check_host(self, host: str) -> None:
        """Without tokens, only this machine may reach the port.

        Raises:
            UsageError: others could.
        """
        if self.open and not is_loopback(host):
            text = f"without tokens the service binds loopback only, and {host!r} is not"
            raise UsageError(f"{text}: give it tokens (a TOML file), or bind 127.0.0.1")

    def admit(
        self, headers: Iterable[tuple[bytes, bytes]], subprotocols: Iterable[str] = (), *, safe: bool = False, peer: str = ""
    ) -> Grant:
        """What the one who knocks may do. A cookie counts for `safe` requests, which change nothing, and for those that a page of
        our own makes.

        Raises:
            Throttled: nothing, for now: too many wrong tokens came from the address of this `peer`.
            Unauthorized: nothing: there is no token, a wrong one, or it is a page of another site.
        """
        given = _given(headers)
        if not self.origin_fits(given.get(b"origin"), given.get(b"host", "")):
            raise Unauthorized("pages of this origin may not connect; list it in origins=")
        if self._known is None:
            return EVERYTHING
        token = _token_in(given.get(b"authorization", ""), subprotocols)
        # An old one is no guess: it would not be taken if it were right.
        fresh = [value for value in cookies.found_in(given.get(b"cookie", "")) if cookies.is_fresh(value, time.time())]
        tried = [token] * bool(token) + fresh * _ours(given, safe=safe)
        found = self._look_up(token) or self._of_cookies(tried)
        self._judge(given, peer, tried, found)
        if found is None:
            raise Unauthorized("the token is missing or wrong")
        return found.grant

    def _judge(self, given: Mapping[bytes, str], peer: str, tried: Sequence[str], found: Known | None) -> None:
        """Count what was wrong.

        Raises:
            Throttled: nothing counts for now, whatever was found.
        """
        guesses, client = self.guesses, client_of(peer, given.get(_FORWARDED, ""), self._proxies)
        wait_s = guesses.wait_for(client)
        if wait_s and tried and not (found is not None and guesses.knows(client, found.digest)):
            guesses.refused += len(tried)
            raise Throttled(wait_s)
        if found is not None:
            guesses.remember(client, found.digest)
        elif tried:
            guesses.count(client, map(_digest, tried))

    def origin_fits(self, origin: str | None, host: str) -> bool:
        """Whether pages of this origin may talk to the service, which was reached under the name `host`."""
        if origin is None or origin in self._origins:
            return True
        ours = not self._origins or _place_of(origin) == host
        # With tokens a foreign page has none, unless somebody gave it one.
        return ours and (not self.open or is_loopback(_name_of(_place_of(origin))))

    def host_fits(self, host: str) -> bool:
        """Whether the service may be reached under this name. Without tokens it has only those of this machine: else a page of
        another site whose name was made to point here would be one of ours."""
        return not self.open or is_loopback(_name_of(host))

    def cookie_for(self, token: str, headers: Iterable[tuple[bytes, bytes]] = (), *, peer: str = "") -> str | None:
        """What a browser may hold in the place of this token; None if it is none.

        Raises:
            Throttled: as for `admit`.
        """
        found = self._look_up(token)
        self._judge(_given(headers), peer, [token], found)
        return None if found is None else cookies.mint(found.digest, time.time())

    def _of_cookies(self, values: Iterable[str]) -> Known | None:
        found, now = None, time.time()
        for value in values:
            for known in self._known or ():
                if cookies.fits(value, known.digest, now):
                    found = known
        return found

    def _look_up(self, token: str) -> Known | None:
        digest, found = _digest(token), None
        for known in self._known or ():  # all of them, whichever fits: the time says nothing
            if hmac.compare_digest(known.digest, digest):
                found = known
        return found


def is_loopback(host: str) -> bool:
    """Whether the name or address is this machine and nobody else's."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _given(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, str]:
    """The headers by their small names; of repeated ones the last, but each proxy may have added where a request came from in one
    of its own, and they are one list."""
    found: dict[bytes, str] = {}
    for name, value in headers:
        key, text = name.lower(), value.decode("latin-1")
        found[key] = f"{found[key]}, {text}" if key == _FORWARDED and key in found else text
    return found


def _origin(text: str) -> str:
    """An origin as browsers write it; any other text would never be that of a page."""
    found = _ORIGIN.fullmatch(text.strip().lower())
    if found is None:
        raise UsageError(f"{text!r} is no origin of a page; write it like 'https://app.example', with a port if it has one")
    return found[1]


def _place_of(origin: str) -> str:
    """Host and port of an origin."""
    return origin.partition("://")[2]


def _name_of(place: str) -> str:
    """A host without its port."""
    name = place[: place.rfind("]") + 1] or place.partition(":")[0]
    return name.strip("[]")


def _ours(given: Mapping[bytes, str], *, safe: bool) -> bool:
    """Whether a page of this service asks, as far as a browser tells: it names the origin of whatever may change something."""
    origin = given.get(b"origin")
    if origin is not None:
        return _place_of(origin) == given.get(b"host", "")
    return safe and given.get(b"sec-fetch-site", "none") in ("none", "same-origin")


def _token_in(authorization: str, subprotocols: Iterable[str]) -> str:
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return token.strip()
    return next((name.removeprefix(BEARER) for name in subprotocols if name.startswith(BEARER)), "")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def tokens_in(environment: Mapping[str, str]) -> Tokens | None:
    """The tokens in `$CALLBOARD_TOKENS`, which holds TOML as a file of tokens does; None if it is not set.

    Raises:
        UsageError: it holds something else; the text does not quote it.
    """
    text = environment.get(VARIABLE)
    return None if text is None else _parse(text, f"${VARIABLE}")


def _read(path: Path) -> Tokens:
    try:
        return _parse(path.read_text(encoding="utf-8-sig"), str(path))
    except OSError as error:
        text = f"the tokens in {path} cannot be read ({error.strerror or error})"
        raise UsageError(f'{text}: write a file with a table for each, ["TOKEN"] and then scopes = ["read"]') from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} {_NO_TOML % ''}") from error


def _parse(text: str, where: str) -> Tokens:
    try:
        tokens = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        # The parser's text may quote the line, and the line may hold a token.
        line = _LINE.search(str(error))
        raise UsageError(f"{where} {_NO_TOML % (f' {line[0]}' if line else '')}") from error
    if not tokens:
        raise UsageError(f"{where} holds no token, so nobody could come in; write one, or do without to serve this machine alone")
    return tokens


def _grant(which: str, token: str, granted: object) -> Grant:
    if not _TOKEN.fullmatch(token):
        raise UsageError(f"{which} is empty or has characters that a header cannot carry; use letters, digits, - and _")
    try:
        return msgspec.convert(granted, Grant)
    except msgspec.ValidationError as error:
        # A field that is none may be a part of a token which has a dot in it and stands without quotes.
        unknown = "unknown field" in str(error)
        why = "has a field that is none (does it stand in quotes?)" if unknown else f"is wrong ({error})"
        text = f'{which} {why}: give it scopes (of {", ".join(SCOPES)}), as in scopes = ["read"], and perhaps a prefix'
        raise UsageError(text) from error
