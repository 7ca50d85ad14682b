"""The header and context in force."""

from __future__ import annotations

import msgspec
from log_script import HEADER, fold

from callboard.storage import events as e
from callboard.storage import messages as m
from callboard.storage.digest import header_digest, header_line
from callboard.storage.folds.headers import KEEP, Context, Headers, HeadersState


def header(number: int) -> m.Header:
    return msgspec.structs.replace(HEADER, system=f"prompt {number}")


def written(of: m.Header, *, whole: bool = True) -> e.RequestHeader:
    return e.RequestHeader(reason="change", digest=header_digest(of), header=of if whole else None)


def test_c099_a_log_without_a_header_has_none() -> None:
    headers = Headers()
    assert not headers.any and headers.current is None and headers.current_line is None and headers.context is None


def test_c100_a_header_comes_back_by_digest_alone() -> None:
    headers = Headers()
    fold(headers, [written(header(1)), written(header(2)), written(header(1), whole=False)])
    assert headers.any and headers.current == header(1) and headers.current_digest == header_digest(header(1))
    assert headers.current_line == header_line(header(1)) and headers.current_line is headers.current_line


def test_c100_an_unknown_digest_leaves_no_header_in_force() -> None:
    headers = Headers()
    fold(headers, [written(header(1)), written(header(2), whole=False)])
    assert headers.any and headers.current is None and headers.current_line is None


def test_c106_the_context_is_the_last_one_and_an_unknown_window_counts() -> None:
    headers = Headers()
    fold(headers, [e.RequestContext(provider="p", model="m", context_window=5), e.RequestContext(provider="p", model="m")])
    assert headers.context == Context("p", "m", None)


def test_c261_a_fork_goes_on_with_header_and_context() -> None:
    headers = Headers()
    fold(
        headers,
        [written(header(1)), e.RequestContext(provider="p", model="m"), e.LogForked(agent="f", name="n", source="a", at=1)],
    )
    headers.fork()
    assert headers.current == header(1) and headers.context == Context("p", "m")


def test_prompts_that_change_with_every_turn_do_not_grow_the_fold() -> None:
    headers, all_of_them = Headers(), Headers(keep=None)
    events = [written(header(n)) for n in range(KEEP)] + [written(header(0), whole=False), written(header(KEEP))]
    fold(headers, events)
    fold(all_of_them, events)
    assert len(headers.known) == KEEP and len(all_of_them.known) == KEEP + 1
    assert header_digest(header(0)) in headers.known and header_digest(header(1)) not in headers.known


def test_c142_a_snapshot_keeps_headers_in_their_order_of_use() -> None:
    headers = Headers()
    fold(
        headers,
        [written(header(1)), written(header(2)), written(header(1), whole=False), e.RequestContext(provider="p", model="m")],
    )
    loaded = Headers.load(msgspec.msgpack.decode(msgspec.msgpack.encode(headers.dump()), type=HeadersState))
    assert loaded.dump() == headers.dump() and list(loaded.known) == list(headers.known)
    assert loaded.current == header(1) and loaded.context == Context("p", "m")
    assert (
        Headers.load(msgspec.msgpack.decode(msgspec.msgpack.encode(Headers().dump()), type=HeadersState)).dump()
        == Headers().dump()
    )
