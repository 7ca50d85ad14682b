"""Building a request: from the log and nothing else, so that it can be built again.

Messages are the surface, which is shared and not copied; the header is what the `request` seam proposed, filled in by the
adapter. Whatever is new of it is written before the request is: header, context, and `request/sent` with the digest of the
canonical form and the last seq it was derived from. `verify` rebuilds exactly this from the log's prefix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ...storage.digest import header_digest, header_line, header_of
from ...storage.errors import UsageError
from ...storage.events import Event, RequestContext, RequestHeader, RequestSent
from ...storage.messages import Header, Request, ToolSpec
from ..answers import Proposal
from ..content import without_images
from ..frozen import frozen_settings
from ..models.model import Model, Prepared, apply_defaults
from ..output import Output, with_tool
from .rendering import rendered
from .surfacing import make_room

if TYPE_CHECKING:
    from .turn import Turn


class Call(Struct, frozen=True, gc=False):
    """A request that is ready to be sent: frozen, with the adapter that prepared it (None: `stream` middleware owns it)."""

    request: Request
    header: Header
    model: Model | None
    prepared: Prepared


async def prepare(turn: Turn) -> Call:
    """Ask the `request` seam for a route, let the adapter fill it in.

    Raises:
        UsageError: nobody named a model.
        ModelError: the adapter refuses such a request.
    """
    await make_room(turn)  # before the seam: a budget that has reserved the request would wait for the summary's call
    proposal = await turn.chains.run("request", turn.actor.context, _seed(turn), _as_proposed)
    if not proposal.provider or not proposal.model:
        raise UsageError(
            f"agent {turn.agent.name!r} has no model: set Agent(model='provider:name'), or name one in a plugin's `request` seam",
            agent=turn.actor.id,
            turn=turn.number,
        )
    assembly = turn.assembly
    assert assembly is not None, "a step is built from an assembly"
    if turn.system_text is None:
        turn.system_text = await _render(turn, assembly.system)
    at = turn.position
    request = Request(
        proposal.provider,
        proposal.model,
        proposal.settings,
        turn.system_text,
        tuple(_spec(tool) for tool in sorted(assembly.tools, key=lambda tool: tool.name)),
        turn.log.state.surface.messages(),
        turn.actor.id,
        turn.number,
        at.step,
        at.attempts + 1,
    )
    own = turn.agent.model if isinstance(turn.agent.model, Model) else None
    model = turn.actor.runtime.models.find(proposal.provider, proposal.model, own=own)
    prepared = _prepared(request, model, turn.agent.typed)
    if prepared.request.messages is not request.messages:
        _refuse_other_messages(turn, request, prepared)
    settings, defaulted = apply_defaults(prepared.request.settings, prepared.defaults)
    messages = prepared.request.messages
    if not prepared.images and turn.log.state.surface.has_media:
        messages = without_images(messages)
    ready = msgspec.structs.replace(prepared.request, settings=frozen_settings(settings), messages=messages)
    header = header_of(ready, defaulted)
    return Call(ready, header, model, prepared)


def _refuse_other_messages(turn: Turn, request: Request, prepared: Prepared) -> None:
    """The log would tell one request and the model get another, and nobody could rebuild it."""
    if list(prepared.request.messages) != list(request.messages):
        route = f"{request.provider}:{request.model}"
        raise UsageError(
            f"the adapter of {route} changed the messages in `prepare`; translate them in `stream`, for the wire alone",
            agent=turn.actor.id,
            turn=turn.number,
        )


def _prepared(request: Request, model: Model | None, output: Output | None) -> Prepared:
    """What the adapter makes of it. Where a value is due and the model answers by no schema, it is offered the tool instead."""
    prepare_by = Prepared if model is None else model.prepare
    if output is None:
        return prepare_by(request)
    prepared = prepare_by(msgspec.structs.replace(request, output=output.schema))
    return prepared if prepared.schema else prepare_by(with_tool(request, output))


def record(turn: Turn, call: Call) -> None:
    """Write what is new of the header and the context, and that the request is sent."""
    log, state, at = turn.log, turn.log.state, turn.position
    upto = log.last
    digest = header_digest(call.header)
    events: list[Event] = []
    reason = _header_reason(turn, digest)
    if reason is not None:
        known = state.headers.known.get(digest)
        events.append(RequestHeader(reason=reason, digest=digest, header=None if known else call.header))
    context = (call.request.provider, call.request.model, call.prepared.context_window)
    if state.headers.context != context:
        events.append(RequestContext(provider=context[0], model=context[1], context_window=context[2]))
    line = state.headers.current_line if reason is None else header_line(call.header)
    whole = state.surface.digest(line or header_line(call.header))
    events.append(RequestSent(turn=turn.number, step=at.step, attempt=at.attempts + 1, digest=whole, upto=upto))
    log.append(*events)
    turn.actor.fresh_epoch = False


def _header_reason(turn: Turn, digest: str) -> Any:
    headers = turn.log.state.headers
    if not headers.any:
        return "initial"
    if turn.actor.fresh_epoch:
        return "resume"
    return "change" if headers.current_digest != digest else None


def _seed(turn: Turn) -> Proposal:
    """For the first request of a turn, or of a definition in it, the agent's own choice; later the last header, less what its
    adapter filled in."""
    header = turn.log.state.headers.current
    if turn.position.sent and header is not None and not turn.position.handed_over:
        settings = msgspec.structs.replace(header.settings, **dict.fromkeys(header.defaulted))
        return Proposal(header.provider, header.model, frozen_settings(settings))
    provider, name = _route(turn)
    return Proposal(provider, name, frozen_settings(turn.agent.sampling))


def _route(turn: Turn) -> tuple[str | None, str | None]:
    model: Any = turn.agent.model
    if model is None:
        return None, None
    if isinstance(model, str):
        provider, _, name = model.partition(":")
        return provider, name
    return model.provider, model.name


async def _as_proposed(proposal: Proposal) -> Proposal:
    return proposal


async def _render(turn: Turn, system: Any) -> str:
    if isinstance(system, str):
        return system
    return await rendered(system, turn.actor.context, f"system= of agent {turn.agent.name!r}") or ""


def _spec(tool: Any) -> ToolSpec:
    return ToolSpec(tool.name, tool.description, tool.schema)
