"""The door of the page: a form that takes a token and gives a cookie for it.

Without a token there is nothing to see, not even the page's scripts. The form is all there is then: it has no script, loads
nothing, and sends the token once, in the body of a POST; a token in an address would end in histories and logs.
"""

from __future__ import annotations

import base64
import hashlib
from urllib.parse import parse_qsl

from ..access import Access, Throttled
from ..cookies import LASTS_S
from .failures import Refused
from .messages import HTML, Request, Response
from .router import Visit

FORM = "application/x-www-form-urlencoded"
_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, -apple-system, "Segoe UI", "Noto Sans", sans-serif;
  --paper: light-dark(#f3f5f5, #101415); --sheet: light-dark(#ffffff, #171c1e); --ink: light-dark(#14191b, #e6ebec);
  --ink-2: light-dark(#4d5a5e, #a9b5b8); --line: light-dark(#c4cccd, #3b4649); --accent: light-dark(#0b6b66, #5ccabf);
  --accent-ink: light-dark(#ffffff, #06211f); --bad: light-dark(#b3261e, #ff8f85); }
* { box-sizing: border-box; }
body { display: grid; place-items: center; min-height: 100vh; margin: 0; padding: 1rem;
  background: var(--paper); color: var(--ink); }
form { display: grid; gap: 1rem; width: min(23rem, 100%); padding: 2rem; background: var(--sheet);
  border: 1px solid var(--line); border-radius: .75rem; }
h1 { font-size: 1.25rem; font-weight: 600; margin: 0; }
p { margin: 0; color: var(--bad); }
label { display: grid; gap: .375rem; color: var(--ink-2); font-size: .875rem; }
input, button { font: inherit; font-size: 1rem; padding: .5rem .75rem; border-radius: .5rem; border: 1px solid var(--line); }
input { background: var(--paper); color: var(--ink); }
button { background: var(--accent); color: var(--accent-ink); border-color: transparent; font-weight: 600; cursor: pointer; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
"""
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Callboard</title><style>%s</style></head>
<body><form method="post" action="/login"><h1>Callboard</h1>%s
<input name="username" autocomplete="username" value="callboard" hidden>
<label>The token of this service
<input name="token" type="password" autocomplete="current-password" required autofocus></label>
<button>Enter</button></form></body></html>
"""
_WRONG = '<p role="alert">This is no token of this service.</p>'
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"


class Login:
    """The form, and the cookie. `name` is the cookie's; `secure` says whether it may only travel under TLS."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self.name, self.secure = "callboard", False

    async def form(self, visit: Visit) -> Response:
        """The form; where there are no tokens there is nothing to ask."""
        return _to("/") if self._access.open else _page()

    async def enter(self, visit: Visit) -> Response:
        """Take the token, and give a cookie for it.

        Raises:
            Refused: 415: the form was sent in another way; 403: by a page of another site.
        """
        request = visit.request
        if request.media_type != FORM:
            raise Refused(415, f"the login takes {FORM}")
        if not _same_origin(request):
            raise Refused(403, "the login takes its own form alone")
        given = dict(parse_qsl(request.body.decode("latin-1"))).get("token", "").strip()
        try:
            cookie = None if self._access.open else self._access.cookie_for(given, request.raw, peer=request.peer)
        except Throttled as error:
            text = f'<p role="alert">Too many wrong tokens came from your address. Try again in {error.wait_s} s.</p>'
            return _page(text, 429).with_headers(("retry-after", str(error.wait_s)))
        if cookie is None:
            return _page(_WRONG, 401)
        return _to("/").with_headers(("set-cookie", self._cookie(cookie, LASTS_S)))

    async def leave(self, visit: Visit) -> Response:
        """Forget the cookie."""
        if not _same_origin(visit.request):
            raise Refused(403, "the logout takes the page's own form alone")
        return _to("/login").with_headers(("set-cookie", self._cookie("", 0)))

    def _cookie(self, value: str, lasts_s: int) -> str:
        secure = "; Secure" if self.secure else ""
        return f"{self.name}={value}; Path=/; Max-Age={lasts_s}; HttpOnly; SameSite=Strict{secure}"


def _same_origin(request: Request) -> bool:
    origin = request.headers.get("origin")
    return origin is None or origin.partition("://")[2] == request.headers.get("host")


def _page(said: str = "", status: int = 200) -> Response:
    return Response((_PAGE % (_STYLE, said)).encode(), status, HTML, (("content-security-policy", _POLICY),))


def _to(path: str) -> Response:
    return Response(b"", 303, HTML, (("location", path),))
