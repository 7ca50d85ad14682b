"""Wrong tokens are counted by address: who guesses much waits, and nobody else does."""

from __future__ import annotations

import itertools
import time
from functools import partial

import httpx
import pytest
import trio
from web import browsing

from callboard.actors.system import System
from callboard.net import ServiceLimits, connect, cookies, serve
from callboard.net.access import Access, Throttled
from callboard.net.guesses import ADDRESSES, Guesses, client_of, networks
from callboard.net.service import Server
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import Disconnected, Unauthorized, UsageError

TOKENS = {"right": {"scopes": ["read"]}}
FORM = "application/x-www-form-urlencoded"


class Clock:
    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


def bearer(token: str, **headers: str) -> list[tuple[bytes, bytes]]:
    given = {"authorization": f"Bearer {token}", **headers}
    return [(name.replace("_", "-").encode(), value.encode()) for name, value in given.items()]


_numbers = itertools.count()


def guess(access: Access, peer: str, times: int) -> None:
    for _ in range(times):
        with pytest.raises(Unauthorized, match="missing or wrong"):
            access.admit(bearer(f"wrong-{next(_numbers)}"), peer=peer)


def test_who_guesses_much_waits_also_with_a_right_token_and_nobody_else_does() -> None:
    clock = Clock()
    access = Access({**TOKENS, "other": {"scopes": ["send"]}}, guesses=Guesses(allowed=5, each_s=3, now=clock))
    guess(access, "192.0.2.1", 5)
    for token in ("wrong", "right"):
        with pytest.raises(Throttled, match=r"too many wrong tokens .* again in 3 s"):
            access.admit(bearer(token), peer="192.0.2.1")
    with pytest.raises(Throttled):
        access.cookie_for("right", peer="192.0.2.1")
    assert access.admit(bearer("right"), peer="192.0.2.2").scopes == ("read",)
    clock.time = 3.1
    assert access.admit(bearer("right"), peer="192.0.2.1").scopes == ("read",)  # a right one costs nothing
    guess(access, "192.0.2.1", 1)
    with pytest.raises(Throttled):
        access.admit(bearer("other"), peer="192.0.2.1")
    clock.time = 1000
    guess(access, "192.0.2.1", 5)
    assert access.guesses.statistics() == {"wrong": 11, "refused": 4, "addresses": 1}


def test_a_token_that_came_in_from_an_address_goes_on_whoever_else_guesses_there() -> None:
    access = Access({**TOKENS, "other": {"scopes": ["send"]}}, guesses=Guesses(allowed=5, each_s=3, now=Clock()))
    cookie = access.cookie_for("right", peer="192.0.2.1")
    guess(access, "192.0.2.1", 5)
    for headers in (bearer("right"), [(b"cookie", f"callboard={cookie}".encode())]):
        assert access.admit(headers, safe=True, peer="192.0.2.1").scopes == ("read",)
    for token in ("wrong", "other"):
        with pytest.raises(Throttled):
            access.admit(bearer(token), peer="192.0.2.1")


def test_a_wrong_token_that_is_tried_again_is_no_guess_and_keeps_nobody_out() -> None:
    access = Access(TOKENS, guesses=Guesses(allowed=2, each_s=3, now=Clock()))
    for _ in range(50):  # a client with a token of last year
        with pytest.raises(Unauthorized, match="missing or wrong"):
            access.admit(bearer("old"), peer="192.0.2.1")
        assert access.cookie_for("old", peer="192.0.2.1") is None
    assert access.admit(bearer("right"), peer="192.0.2.1").scopes == ("read",)
    assert access.guesses.statistics() == {"wrong": 100, "refused": 0, "addresses": 1}
    guess(access, "192.0.2.1", 1)
    with pytest.raises(Throttled):
        access.admit(bearer("old"), peer="192.0.2.1")


def test_a_request_without_a_token_is_no_guess_and_an_old_cookie_is_none_either() -> None:
    access = Access(TOKENS, guesses=Guesses(allowed=1, each_s=3, now=Clock()))
    old = cookies.mint(b"any", time.time() - 2 * cookies.LASTS_S)
    for headers in ([], [(b"cookie", f"callboard={old}".encode())]):
        for _ in range(3):
            with pytest.raises(Unauthorized, match="missing or wrong"):
                access.admit(headers, safe=True, peer="192.0.2.1")
    guess(access, "192.0.2.1", 1)
    with pytest.raises(Unauthorized, match="missing or wrong"):
        access.admit([], peer="192.0.2.1")


def test_each_cookie_is_a_guess() -> None:
    access = Access(TOKENS, guesses=Guesses(allowed=20, each_s=3, now=Clock()))
    forged = "; ".join(f"callboard-{n}={cookies.mint(b'%d' % n, time.time())}" for n in range(20))
    with pytest.raises(Unauthorized, match="missing or wrong"):
        access.admit([(b"cookie", forged.encode())], safe=True, peer="192.0.2.1")
    with pytest.raises(Throttled):
        access.admit([(b"cookie", forged.encode())], safe=True, peer="192.0.2.1")


def test_zero_allows_none_and_memory_is_bounded() -> None:
    with pytest.raises(Throttled):
        Access(TOKENS, guesses=Guesses(allowed=0, each_s=3)).admit(bearer("right"), peer="192.0.2.1")
    guesses = Guesses(allowed=1, each_s=3, now=Clock())
    for number in range(2 * ADDRESSES):
        guesses.count(f"{number}", [b"wrong"])
        guesses.remember(f"{number}", b"token")
    assert [guesses.knows(f"{number}", b"token") for number in (ADDRESSES - 1, ADDRESSES)] == [False, True]
    assert guesses.statistics()["addresses"] == ADDRESSES and guesses.wait_for(f"{2 * ADDRESSES - 1}") == 3


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("192.0.2.1", "", "192.0.2.1"),
        ("192.0.2.1", "198.51.100.7", "192.0.2.1"),  # no proxy of ours: not believed
        ("127.0.0.1", "198.51.100.7", "198.51.100.7"),
        ("127.0.0.1", "6.6.6.6, 198.51.100.7", "198.51.100.7"),  # what the client said itself stands before
        ("127.0.0.1", "198.51.100.7, 10.1.2.3", "198.51.100.7"),
        ("127.0.0.1", "198.51.100.7:4711", "198.51.100.7"),
        ("127.0.0.1", "10.1.2.3", "10.1.2.3"),
        ("127.0.0.1", "", "127.0.0.1"),
        ("127.0.0.1", "unknown", "127.0.0.1"),
        ("::1", "[2001:db8:1:2:3::4]:80", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.1", "", "192.0.2.1"),
        ("", "198.51.100.7", ""),
        ("fe80::1%eth0", "", "fe80::/64"),
        ("::1", "fe80::%any", "fe80::/64"),  # else one address has as many names as it likes
    ],
)
def test_for_whom_a_proxy_asks(peer: str, forwarded: str, client: str) -> None:
    assert client_of(peer, forwarded, networks(["127.0.0.0/8", "::1", "10.0.0.0/8"])) == client


def test_each_proxy_may_have_written_a_header_of_its_own() -> None:
    access = Access(TOKENS, proxies=["127.0.0.0/8", "10.0.0.0/8"], guesses=Guesses(allowed=1, each_s=3, now=Clock()))

    def through(token: str, client: str) -> list[tuple[bytes, bytes]]:
        return [*bearer(token), (b"x-forwarded-for", client.encode()), (b"X-Forwarded-For", b"10.1.2.3")]

    with pytest.raises(Unauthorized, match="missing or wrong"):
        access.admit(through("wrong", "198.51.100.7"), peer="127.0.0.1")
    with pytest.raises(Throttled):
        access.admit(through("right", "198.51.100.7"), peer="127.0.0.1")
    assert access.admit(through("right", "198.51.100.8"), peer="127.0.0.1").scopes == ("read",)


def test_a_proxy_is_an_address() -> None:
    with pytest.raises(UsageError, match="name a proxy by its address"):
        Access(TOKENS, proxies=["proxy.example"])


async def test_over_http_the_answer_is_429_with_a_time(autojump_clock: object) -> None:
    async with browsing(tokens=TOKENS) as web:
        for number in range(20):
            assert (await web.get("/v1/models", authorization=f"Bearer wrong-{number}")).status == 401
        refused = await web.get("/v1/models", authorization="Bearer right")
        assert (refused.status, refused.headers["retry-after"]) == (429, "3")
        assert "try again in 3 s" in refused.error["message"]
        form = await web.ask("POST", "/login", b"token=right", content_type=FORM)
        assert (form.status, form.headers["retry-after"]) == (429, "3") and b"Try again in 3 s" in form.body
        assert (await web.get("/healthz")).status == 200
        assert (await web.get("/v1/models")).status == 401  # no token, no guess
        assert web.server.statistics()["tokens"] == {"wrong": 20, "refused": 2, "addresses": 1}


async def test_logins_are_counted_too(autojump_clock: object) -> None:
    async with browsing(tokens=TOKENS) as web:
        answers = [(await web.ask("POST", "/login", b"token=%d" % n, content_type=FORM)).status for n in range(22)]
        assert answers == [401] * 20 + [429] * 2


async def test_readyz_is_no_way_round(autojump_clock: object) -> None:
    async with browsing(tokens=TOKENS) as web:
        for number in range(21):
            assert (await web.get("/readyz", authorization=f"Bearer wrong-{number}")).status == 200
        assert (await web.get("/v1/models", authorization="Bearer right")).status == 429


async def test_a_websocket_is_refused_with_429_and_other_clients_of_a_proxy_come_in() -> None:
    async with System.open(MemoryStore(), agents=[]) as system, trio.open_nursery() as nursery:
        limits = ServiceLimits(wrong_tokens=2, wrong_token_s=3600)
        server: Server = await nursery.start(partial(serve, system, tokens=TOKENS, limits=limits))
        for number in range(2):
            with pytest.raises(Unauthorized):
                async with connect(server.url, f"wrong-{number}"):
                    pass
        with pytest.raises(Disconnected, match=r"too many wrong tokens came from your address; try again in 3600 s"):
            async with connect(server.url, "right"):
                pass
        async with httpx.AsyncClient(base_url=server.page, headers={"authorization": "Bearer right"}) as http:
            assert (await http.get("/v1/models")).status_code == 429
            assert (await http.get("/v1/models", headers={"x-forwarded-for": "192.0.2.7"})).status_code == 200
        nursery.cancel_scope.cancel()
