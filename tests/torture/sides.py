"""What happens beside the trees: agents that are cancelled, deleted, forked, asked about and ended by a restart.

Each number has a `wirer` whose tool may run again only if a person says so (`replay="ask"`), and a fork of it that runs its turn
again; a `fragile` agent whose open turn a restart ends (`recovery="end"`); a `doomed` one that is cancelled while its tool hangs;
and a `brief` one that is deleted with its helper as soon as it has answered. Their clients do over what they got no word about.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from callboard import Agent, System, ToolContext, delegate, tool
from callboard.actors.testing import Reply, ScriptedModel
from callboard.mailbox.addresses import effect_key
from callboard.storage.errors import AgentNotFound
from callboard.storage.messages import Request

if TYPE_CHECKING:
    from tree_checks import Kept
    from trees import Ledger, World

WIRED = "wired"
KINDS = ("wirer", "fragile", "doomed", "brief")


def agents_beside(world: World, pay: Any, look: Any) -> list[Agent[Any, Any]]:
    """Their definitions."""

    @tool(replay="ask")
    async def wire(ctx: ToolContext[Any]) -> str:
        """Wire money, again only if a person says so."""
        world.ledger.write("wires", ctx.effect_key)
        await trio.sleep(world.pace)
        return WIRED

    @tool
    async def hang(ctx: ToolContext[Any]) -> str:
        """Until it is cancelled."""
        await trio.sleep_forever()
        return "never"

    def agent(name: str, call: tuple[str, str, Any], *tools: Any, **options: Any) -> Agent[Any, Any]:
        def says(request: Request) -> Reply:
            done = any(message.results for message in request.messages)
            return Reply.text("that is all", parts=3) if done else Reply.tools(call)

        model = ScriptedModel(lambda request: world.faults(request) or says(request), keep_requests=False)
        return Agent(name, model=model, tools=tools, plugins=(), limits=world.limits, **options)

    aide = agent("aide", ("l", "look", {}), look)
    return [
        agent("wirer", ("x", "wire", {}), wire),
        agent("fragile", ("p", "pay", {}), pay, recovery="end"),
        agent("doomed", ("g", "hang", {}), hang),
        agent("brief", ("b", "aide", {"task": "see"}), delegate(aide)),
    ]


async def live_beside(world: World, system: System, until_kept: Any) -> None:
    """Their clients, until each has what it wants."""
    kept = partial(until_kept, world)
    async with trio.open_nursery() as clients:
        for n in range(world.trees):
            clients.start_soon(_wire_and_fork, world, system, n, kept)
            clients.start_soon(_fragile, world, system, n, kept)
            clients.start_soon(_cancel, world, system, n, kept)
            clients.start_soon(_delete, world, system, n, kept)


async def _sent(world: World, system: System, id: str, kept: Any) -> Any:
    ref = await kept(partial(system.spawn, system.definitions[id.partition("-")[0]], id=id))
    await kept(partial(ref.followup, "input 0", message_id="m0"))
    if not id.startswith("brief-"):
        world.ledger.write("receipts", f"{id} m0")
    return ref


async def _wire_and_fork(world: World, system: System, n: int, kept: Any) -> None:
    ref = await _sent(world, system, f"wirer-{n}", kept)
    await kept(partial(ref.outcome, "m0"))
    try:
        fork = await kept(partial(system.get, f"fork-{n}"))
    except AgentNotFound:
        fork = await kept(partial(ref.fork, turn=1, id=f"fork-{n}", rerun=True))
    world.ledger.write("forks", f"fork-{n}")
    await kept(partial(fork.outcome, turn=1))


async def _fragile(world: World, system: System, n: int, kept: Any) -> None:
    ref = await _sent(world, system, f"fragile-{n}", kept)
    outcome = await kept(partial(ref.outcome, "m0"))
    world.ledger.write("outcomes", f"{ref.id} m0 {outcome.turn} {outcome.reason.kind} {outcome.text}")


async def _cancel(world: World, system: System, n: int, kept: Any) -> None:
    ref = await _sent(world, system, f"doomed-{n}", kept)
    await trio.sleep(2 * world.pace)
    await kept(ref.cancel)
    world.ledger.write("cancels", ref.id)
    await kept(ref.wait_idle)


async def _delete(world: World, system: System, n: int, kept: Any) -> None:
    id = f"brief-{n}"
    if id in world.ledger.lines("deleted"):
        return
    ref = await _sent(world, system, id, kept)
    await kept(partial(ref.outcome, "m0"))
    with suppress(AgentNotFound):  # a delete whose commit failed for its client may have reached the disk
        await kept(partial(system.delete, id))
    world.ledger.write("deleted", id)


def problems_beside(kept: Kept, ledger: Ledger, *, over: bool) -> Iterator[str]:
    """What does not hold of them."""
    allowed = Counter(key.split(" ", 1)[0] for key, verdict in kept.answers.items() if verdict == "allow")
    for n in range(sum(id.startswith("wirer-") for id in kept.heads)):
        for agent in (f"wirer-{n}", f"fork-{n}"):
            runs = ledger.lines("wires").count(effect_key(agent, 1, 1, "x"))
            if runs > 1 + allowed[agent]:
                yield f"{agent} wired {runs} times, and was allowed to do so again {allowed[agent]} times"
    for id in ledger.lines("deleted"):
        if any(other == id or other.startswith(f"{id}/") for other in kept.heads):
            yield f"{id} was deleted, and is there"
    for id in ledger.lines("forks"):
        if id not in kept.heads:
            yield f"{id} was forked, and is not there"
    for key in kept.cancelled:
        if kept.turns.get(key, "aborted") != "aborted":
            yield f"turn {key} was cancelled, and ended {kept.turns[key]}"
    if over:
        yield from (f"{id} was cancelled and has an open turn" for id in ledger.lines("cancels") if kept.heads[id].summary.open)
        yield from (f"{id} has no end" for id in ledger.lines("forks") if kept.turns.get(f"{id} 1") not in ("completed",))
