"""Who may do what: tokens by their digests, scopes, prefixes, origins, and what holds without tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from callboard.net.access import EVERYTHING, Access, Grant, is_loopback
from callboard.storage.errors import Unauthorized, UsageError

TOKENS: dict[str, dict[str, Any]] = {
    "reader-token": {"scopes": ["read"], "prefix": "acme/"},
    "sender-token": {"scopes": ["read", "send"]},
    "admin-token": {"scopes": ["admin"]},
}


def bearer(token: str) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", b"Bearer " + token.encode())]


@pytest.mark.parametrize(("token", "scopes"), [(t, tuple(g["scopes"])) for t, g in TOKENS.items()])
def test_a_token_comes_in_a_header_or_a_subprotocol(token: str, scopes: tuple[str, ...]) -> None:
    access = Access(TOKENS)
    assert access.admit(bearer(token), ["callboard.v1"]).scopes == scopes
    assert access.admit([(b"Authorization", b"bearer  " + token.encode())], []).scopes == scopes
    assert access.admit([], ["callboard.v1", f"bearer.{token}"]).scopes == scopes


@pytest.mark.parametrize("headers", [[], bearer("wrong"), bearer(""), bearer("reader-toke"), [(b"authorization", b"Basic x")]])
def test_c227_a_wrong_or_missing_token_is_refused(headers: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(Unauthorized, match="missing or wrong"):
        Access(TOKENS).admit(headers, ["callboard.v1"])
    with pytest.raises(Unauthorized):
        Access({}).admit(headers, [])


def test_c227_scopes_are_apart_and_admin_holds_all() -> None:
    access = Access(TOKENS)
    sender = access.admit(bearer("sender-token"), [])
    sender.check_scope("send", "ask")
    with pytest.raises(Unauthorized, match="'delete' needs the scope 'admin', and this token has read, send"):
        sender.check_scope("admin", "delete")
    with pytest.raises(Unauthorized):
        Grant(()).check_scope("read", "get")
    for scope in ("read", "send", "admin"):
        access.admit(bearer("admin-token"), []).check_scope(scope, "x")


def test_a_prefix_bounds_ids_and_lists() -> None:
    grant = Grant(("read",), "acme/")
    grant.check_agent("acme/a")
    with pytest.raises(Unauthorized, match="begin with 'acme/'"):
        grant.check_agent("acme")
    assert [grant.narrow(prefix) for prefix in ("", "ac", "acme/", "acme/a", "b", "acme-")] == ["acme/"] * 3 + [
        "acme/a",
        None,
        None,
    ]
    assert EVERYTHING.narrow("x") == "x"


def test_c227_tokens_are_in_no_text(tmp_path: Path) -> None:
    access = Access({"very-secret": {"scopes": ["read"]}})
    assert "very-secret" not in repr(vars(access))
    bad = tmp_path / "tokens.toml"
    for text in (
        '["very-secret"]\nscopes = ["reed"]',
        '["very-secret" scopes',
        '["very-secret"]\nscope = ["read"]',
        'very-secret = "x"',
    ):
        bad.write_text(text)
        with pytest.raises(UsageError) as caught:
            Access(bad)
        assert "very-secret" not in str(caught.value) and str(caught.value)


def test_tokens_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text('["reader-token"]\nscopes = ["read"]\nprefix = "acme/"\n')
    assert Access(file).admit(bearer("reader-token"), []) == Grant(("read",), "acme/")
    with pytest.raises(UsageError, match="cannot be read"):
        Access(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "nobody could come in"),
        (b"# none yet\n", "nobody could come in"),
        ('["secret"]'.encode("utf-16"), "is no TOML;"),
        (b'["s\xe9cret"]', "is no TOML;"),
        (b'["secret"]\nscopes = ["read"]\n["secret"]', "is no TOML at line 3;"),
        (b'["secret"]\nscopes = read', "is no TOML at line 2;"),
        (b"secret = " + b"[" * 5000, "is no TOML;"),
        (b'secret = "read"', "got `str`"),
        (b'[a.secret]\nscopes = ["read"]', "does it stand in quotes?"),
        (b'["secret"]\nscopes = "admin"', "Expected `array`"),
        (b'["secret"]\nscopes = ["root"]', "'root'"),
    ],
)
def test_a_file_that_holds_something_else_is_one_sentence_without_what_it_holds(tmp_path: Path, data: bytes, says: str) -> None:
    file = tmp_path / "tokens.toml"
    file.write_bytes(data)
    with pytest.raises(UsageError) as caught:
        Access(file)
    assert says in str(caught.value) and "secret" not in str(caught.value)


def test_a_file_that_begins_with_a_mark_is_read(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    file.write_bytes(b'\xef\xbb\xbf["a-secret"]\r\nscopes = ["read"]\r\n')
    assert Access(file).admit([(b"authorization", b"Bearer a-secret")]).scopes == ("read",)


@pytest.mark.parametrize("token", ["", "has blank", "naïve", 'quo"te', "a\nb", "a,b"])
def test_a_token_that_no_header_carries_is_refused(token: str) -> None:
    with pytest.raises(UsageError, match="token 1"):
        Access({token: {"scopes": ["read"]}})


def test_without_tokens_only_this_machine() -> None:
    access = Access(None)
    access.check_host("127.0.0.1")
    access.check_host("localhost")
    access.check_host("::1")
    for host in ("0.0.0.0", "::", "10.0.0.1", "example.org", ""):
        with pytest.raises(UsageError, match="loopback only"):
            access.check_host(host)
        Access({}).check_host(host)
    assert not is_loopback("127.0.0.1.example.org")


def test_without_tokens_pages_of_other_sites_are_turned_away() -> None:
    access = Access(None)
    for origin in (b"http://localhost:3000", b"http://127.0.0.1:8000", b"http://[::1]:8000"):
        assert access.admit([(b"origin", origin)], []) == EVERYTHING
    for origin in (b"https://evil.example", b"null", b"http://127.0.0.1.evil.example", b"file://", b"\xff"):
        with pytest.raises(Unauthorized, match="origin"):
            access.admit([(b"origin", origin)], [])


def test_an_origin_is_what_browsers_write() -> None:
    for listed in ("https://app.example/", "HTTPS://App.example"):
        Access(TOKENS, origins=[listed]).admit([(b"origin", b"https://app.example"), *bearer("admin-token")], [])
    for listed in ("app.example", "https://app.example/page", "*", ""):
        with pytest.raises(UsageError, match="is no origin of a page"):
            Access(TOKENS, origins=[listed])


def test_origins_that_are_listed_are_the_only_ones() -> None:
    for access in (Access(None, origins=["https://app.example"]), Access(TOKENS, origins=["https://app.example"])):
        access.admit([(b"origin", b"https://app.example"), *bearer("admin-token")], [])
        with pytest.raises(Unauthorized, match="origin"):
            access.admit([(b"origin", b"http://localhost"), *bearer("admin-token")], [])
    Access(TOKENS).admit([(b"origin", b"https://any.example"), *bearer("admin-token")], [])
