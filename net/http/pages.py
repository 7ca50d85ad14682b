"""The inspector's page: files that come with the package, served as they are.

A name is made of plain segments, so nothing outside the folder can be named, and none that begins with a dot. A browser asks
again with the digest it has, and hears that nothing changed. The policy lets a page load from its own port alone, and nobody
may put it into a frame.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from msgspec import Struct

from .failures import Refused
from .messages import HTML, Request, Response

HOME = Path(__file__).parent.parent / "page"
POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
TYPES = {
    ".html": HTML,
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".json": "application/json",
    ".woff2": "font/woff2",
}
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")


class _File(Struct, frozen=True):
    body: bytes
    tag: str
    stamp: tuple[int, int]


class Pages:
    """The files of one folder; each is read when it is asked for, and again when it has changed."""

    def __init__(self, home: Path = HOME) -> None:
        self.home = home
        self._files: dict[str, _File] = {}

    def serve(self, name: str, request: Request) -> Response:
        """The file of this name.

        Raises:
            Refused: 404: there is none.
        """
        path = self.home / name
        if not _NAME.fullmatch(name) or path.suffix not in TYPES:
            raise Refused(404, f"there is no page {name[:200]!r}")
        try:
            file = self._look(name, path)
        except (OSError, ValueError) as error:
            raise Refused(404, f"there is no page {name[:200]!r}") from error
        headers = (("etag", file.tag), ("cache-control", "no-cache"), ("content-security-policy", POLICY))
        if file.tag in request.headers.get("if-none-match", ""):
            return Response(b"", 304, TYPES[path.suffix], headers)
        return Response(file.body, 200, TYPES[path.suffix], headers)

    def _look(self, name: str, path: Path) -> _File:
        found = path.stat()
        stamp = (found.st_mtime_ns, found.st_size)
        known = self._files.get(name)
        if known is None or known.stamp != stamp:
            body = path.read_bytes()
            known = self._files[name] = _File(body, f'"{hashlib.sha256(body).hexdigest()[:32]}"', stamp)
        return known
