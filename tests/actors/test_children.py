"""Section 16 of the conformance cases: children that a tool delegates to or spawns, and how their ends reach the parent."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import trio
from helpers import check, events, history, make, order, records, say, scripted
from trio.testing import wait_all_tasks_blocked

from callboard.actors import Agent, AgentRef, Boundary, Enter, LimitReached, Plugin, Reject, System, ToolContext, delegate, tool
from callboard.actors.answers import CallResult
from callboard.actors.limits import Limits
from callboard.actors.seams import Next, SeamContext
from callboard.actors.testing import Reply, ScriptedModel
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.messages import Message, TextBlock, UserSource

OPEN = "put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X Q1 C* A"
CLOSE = "SE SS1.2 Q1 C* A SE TE1{completed}"
CHILD = "put[t](go) TS1 claim(go) SS1.1 U(go) H{initial} X Q1"
FIRST = "a/1.1.c1"
"""The id of the child that call c1 of the first step makes."""


def task(id: str, text: str = "go", name: str = "worker") -> tuple[str, str, Any]:
    """One call of a delegation."""
    return id, name, {"task": text}


def worker(*replies: Any, **options: Any) -> Agent[Any, Any]:
    """The child's definition."""
    return Agent("worker", model=scripted(*replies), plugins=()).replace(**options)


def parent(child: Agent[Any, Any], *replies: Any, background: bool = False, **options: Any) -> Agent[Any, Any]:
    """A parent that delegates to it."""
    return make(scripted(*replies), tools=[delegate(child, background=background)], **options)


async def run(agent: Agent[Any, Any], store: MemoryStore) -> None:
    """One turn of the parent, to its end."""
    async with System.open(store, agents=[agent]) as system:
        ref = await system.spawn(agent, id="a", labels={"team": "red"})
        await say(ref, "hi")
        for summary in [summary async for summary in system.agents()]:
            await (await system.get(summary.id)).wait_idle()
    await check(store)


async def result(store: MemoryStore, nth: int = 0) -> tuple[str | None, str]:
    """Error code and text of one of the parent's results."""
    found = (await events(store, e.ToolResult))[nth]
    return found.error, CallResult(found.content).text


async def test_c206_a_delegation_is_a_child_with_one_task() -> None:
    store = MemoryStore()
    child = worker(Reply.tools(("x", "nothing", {}), text="looking"), "found it")
    agent = parent(child, Reply.tools(task("c1")), "thanks")
    await run(agent, store)
    assert await order(store) == f"{OPEN} call(c1) born died{{completed}} res(c1) {CLOSE}"
    assert await order(store, FIRST) == (f"{CHILD} C* A call(x) res(x!UNKNOWN_TOOL) SE SS1.2 Q1 C* A SE TE1{{completed}}")
    (created,) = await events(store, e.LogCreated, FIRST)
    assert (created.parent, created.depth, created.name, created.labels) == ("a", 1, "worker", {"team": "red"})
    assert await result(store) == (None, "found it")
    (put,) = await events(store, e.InboxPut, FIRST)
    assert put.sender == "a"
    (ended,) = await events(store, e.ChildEnded)
    assert ended.usage.output > 0
    async with System.open(store, agents=[agent]) as system:
        assert await history(await system.get("a")) == ["user hi", "assistant ", "tool found it", "assistant thanks"]


class Refuses(Plugin):
    """Blocks a child's task, or lets it reach a limit."""

    def __init__(self, how: str) -> None:
        self.how = how

    async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Next[Boundary, Enter | Reject]) -> Enter | Reject:
        if self.how == "blocked":
            return Reject("not today")
        if self.how == "limit":
            raise LimitReached("steps", "enough")
        if self.how == "aborted" and boundary.step == 2:
            await ctx.agent.cancel()
        return await next(boundary)


@pytest.mark.parametrize(
    ("kind", "replies", "code", "says"),
    [
        ("blocked", [], "CHILD_BLOCKED", "was blocked: not today"),
        ("max-tokens", [Reply.max_tokens("so far")], "CHILD_MAX_TOKENS", "so far"),
        ("error", [Reply.fail("QUOTA", "no money", after="so far")], "CHILD_ERROR", "QUOTA: no money"),
        ("limit", [], "CHILD_LIMIT", "reached the limit steps: enough"),
        ("aborted", [Reply.tools(("x", "nothing", {}), text="so far"), "never"], "CHILD_ABORTED", "so far"),
    ],
)
async def test_c207_what_is_no_success_is_an_error_that_names_the_kind(
    kind: str, replies: list[Any], code: str, says: str
) -> None:
    store = MemoryStore()
    await run(parent(worker(*replies, plugins=[Refuses(kind)]), Reply.tools(task("c1")), "well"), store)
    died = f"died{{{kind}}}"
    assert await order(store) == f"{OPEN} call(c1) born {died} res(c1!{code}) {CLOSE}"
    error, text = await result(store)
    assert (error, says in text, FIRST in text) == (code, True, True)
    (ended,) = await events(store, e.ChildEnded)
    (end,) = await events(store, e.TurnEnd, FIRST)
    assert ended.reason == end.reason


class CancelsAtSpawn(MemoryStore):
    """Cancels the parent while the child's log is being made."""

    system: System | None = None

    async def own(self, agent: str) -> int:
        if agent == FIRST and self.system is not None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon((await self.system.get("a")).cancel)
                with trio.CancelScope(shield=True):
                    await wait_all_tasks_blocked()
                    return await super().own(agent)
        return await super().own(agent)


async def test_c208_a_child_that_is_spawned_during_a_cancel_asks_no_model() -> None:
    store = CancelsAtSpawn()
    child = worker("never")
    agent = parent(child, Reply.tools(task("c1")))
    async with System.open(store, agents=[agent]) as system:
        store.system = system
        ref = await system.spawn(agent, id="a")
        await say(ref, "hi")
        for summary in [summary async for summary in system.agents()]:
            await (await system.get(summary.id)).wait_idle()
    await check(store)
    assert await order(store) == f"{OPEN} call(c1) TC1 born died{{aborted}} res(c1!ABORTED) SE TE1{{aborted user}}"
    assert await order(store, FIRST) == "put[t](go) drop(go){cancelled}"


class Hangs(Plugin):
    """Never lets a child's task enter."""

    async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Next[Boundary, Enter | Reject]) -> Enter | Reject:
        await trio.sleep_forever()
        return await next(boundary)


@pytest.mark.parametrize("background", [False, True])
async def test_c208_a_child_cancelled_at_its_boundary_does_not_do_the_task_later(background: bool) -> None:
    store = MemoryStore()
    agent = parent(worker("never", plugins=[Hangs()]), Reply.tools(task("c1")), Reply.hang(), background=background)
    async with System.open(store, agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        await ref.followup("hi")
        await wait_all_tasks_blocked()
        await (await system.get(FIRST)).inject("by the way")
        await ref.cancel()
        await ref.wait_idle()
        await wait_all_tasks_blocked()
        assert [item.message.text for item in await (await system.get(FIRST)).pending()] == ["by the way"]
    await check(store)
    assert await order(store, FIRST) == "put[t](go) TS1 put[s](by the way) TC1(go) TE1{aborted parent}"
    between = "res(c1) SE SS1.2 Q1 TC1 died{aborted}" if background else "TC1 died{aborted} res(c1!ABORTED)"
    assert await order(store) == f"{OPEN} call(c1) born {between} SE TE1{{aborted user}}"


async def test_c209_two_delegations_of_one_batch_run_side_by_side() -> None:
    store, together = MemoryStore(), trio.Event()
    running = 0

    def answer(request: Any) -> Reply:
        nonlocal running
        running += 1
        if running == 2:
            together.set()
        return Reply.wait(together, Reply.text(f"done {request.messages[0].text}"))

    child = Agent("worker", model=ScriptedModel(answer), plugins=())
    await run(parent(child, Reply.tools(task("c1", "one"), task("c2", "two")), "thanks"), store)
    log = (await order(store)).split()
    assert log[log.index("call(c1)") :] == [
        *("call(c1)", "call(c2)", "born", "born", "died{completed}", "died{completed}", "res(c1)", "res(c2)"),
        *CLOSE.split(),
    ]
    assert [await result(store, n) for n in (0, 1)] == [(None, "done one"), (None, "done two")]
    assert sorted(event.child for event in await events(store, e.ChildSpawned)) == [FIRST, "a/1.1.c2"]


@pytest.mark.parametrize(("limits", "says"), [(Limits(depth=0), "Limits.depth=0"), (Limits(children=0), "Limits.children")])
async def test_c210_a_limit_on_children_is_an_error_result(limits: Limits, says: str) -> None:
    store = MemoryStore()
    await run(parent(worker(), Reply.tools(task("c1")), "well", limits=limits), store)
    assert await order(store) == f"{OPEN} call(c1) res(c1!LIMIT) {CLOSE}"
    error, text = await result(store)
    assert error == "LIMIT"
    assert says in text


async def test_c211_two_background_children_that_end_together_are_one_later_step() -> None:
    store, let_go, busy = MemoryStore(), trio.Event(), trio.Event()

    @tool
    async def wait() -> str:
        """Until both children have ended."""
        busy.set()
        await let_go.wait()
        return "waited"

    child = Agent("worker", model=ScriptedModel(lambda request: Reply.wait(busy, Reply.text("found"))), plugins=())
    script = scripted(Reply.tools(task("c1"), task("c2"), ("c3", "wait", {})), "thanks")
    agent = make(script, tools=[delegate(child, background=True), wait])
    async with System.open(store, agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        await ref.followup("hi")
        await busy.wait()
        for id in (FIRST, "a/1.1.c2"):
            await (await system.get(id)).wait_idle()
        let_go.set()
        await ref.wait_idle()
    await check(store)
    assert await order(store) == (
        f"{OPEN} call(c1) call(c2) born born res(c1) res(c2) call(c3) died{{completed}} put[s](found) "
        "died{completed} put[s](found) res(c3) SE claim(found,found) SS1.2 U(found) U(found) Q1 C* A SE TE1{completed}"
    )


async def test_c211_a_background_child_wakes_an_idle_parent() -> None:
    store, later = MemoryStore(), trio.Event()
    child = worker(Reply.wait(later, Reply.text("found")))
    agent = parent(child, Reply.tools(task("c1")), "later then", "thanks", background=True)
    async with System.open(store, agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        await say(ref, "hi")
        assert await order(store) == f"{OPEN} call(c1) born res(c1) {CLOSE}"
        later.set()
        await wait_all_tasks_blocked()
        await ref.wait_idle()
    await check(store)
    assert await order(store) == (
        f"{OPEN} call(c1) born res(c1) {CLOSE} died{{completed}} put[s](found) TS2 claim(found) SS2.1 U(found) "
        "Q1 C* A SE TE2{completed}"
    )


@pytest.mark.parametrize("dispose", [False, True])
async def test_c213_a_cancel_ends_the_tree_from_below(dispose: bool) -> None:
    store = MemoryStore()
    leaf = Agent("leaf", model=scripted(Reply.hang("deep")), plugins=())
    middle = worker(Reply.tools(task("c1", name="leaf")), tools=[delegate(leaf)])
    agent = parent(middle, Reply.tools(task("c1")))
    async with System.open(store, agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        await ref.followup("hi")
        await wait_all_tasks_blocked()
        below = await system.get("a/1.1.c1/1.1.c1")
        await below.followup("more")
        await (ref.dispose() if dispose else ref.cancel())
        await ref.wait_idle()
        assert [item.id for item in await below.pending()]
    await check(store)
    cause = "disposed" if dispose else "user"
    assert await order(store) == f"{OPEN} call(c1) born TC1 died{{aborted}} res(c1!ABORTED) SE TE1{{aborted {cause}}}"
    assert await order(store, FIRST) == (
        f"{CHILD} C* A call(c1) born TC1 died{{aborted}} res(c1!ABORTED) SE TE1{{aborted parent}}"
    )
    assert await order(store, "a/1.1.c1/1.1.c1") == (f"{CHILD} C* put[t](more) TC1 A{{cut}} SE TE1{{aborted parent}}")


async def test_c213_a_cancel_ends_children_in_the_background_first() -> None:
    store = MemoryStore()
    agent = parent(worker(Reply.hang("deep")), Reply.tools(task("c1")), Reply.hang("well"), background=True)
    async with System.open(store, agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        await ref.followup("hi")
        await wait_all_tasks_blocked()
        await ref.cancel()
        await ref.wait_idle()
        await (await system.get(FIRST)).wait_idle()
        assert await (await system.get(FIRST)).pending() == ()
    await check(store)
    assert await order(store) == (
        f"{OPEN} call(c1) born res(c1) SE SS1.2 Q1 C* TC1 died{{aborted}} A{{cut}} SE TE1{{aborted user}}"
    )


async def test_c213_one_deadline_bounds_the_bodies_of_three_levels(autojump_clock: trio.testing.MockClock) -> None:
    store, release = MemoryStore(), trio.Event()

    @tool
    async def deaf() -> str:
        """Does not listen."""
        with trio.CancelScope(shield=True):
            await release.wait()
        return ""

    leaf = Agent("leaf", model=scripted(Reply.tools(("x", "deaf", {}))), tools=[deaf], plugins=())
    middle = worker(Reply.tools(task("c1", name="leaf")), tools=[delegate(leaf)])
    agent = parent(middle, Reply.tools(task("c1")), limits=Limits(abandon_s=5))
    async with System.open(store, agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        await ref.followup("hi")
        await wait_all_tasks_blocked()
        began = trio.current_time()
        await ref.cancel()
        await ref.wait_idle()
        assert trio.current_time() - began == pytest.approx(5)
        release.set()
    below = await order(store, "a/1.1.c1/1.1.c1")
    assert below.endswith("call(x) TC1 res(x!ABANDONED) SE TE1{aborted parent} note(stray-ended)")
    for id, cause in ((FIRST, "parent"), ("a", "user")):
        assert (await order(store, id)).endswith(f"born TC1 died{{aborted}} res(c1!ABORTED) SE TE1{{aborted {cause}}}")
    await check(store)


async def test_c283_a_tool_may_spawn_a_child_and_finds_it_again() -> None:
    store = MemoryStore()
    seen: list[str] = []
    child = worker("hello")

    @tool(replay="safe")
    async def hire(ctx: ToolContext[Any]) -> str:
        """Makes a child without a task."""
        ref: AgentRef[Any] = await ctx.spawn(child)
        seen.append(ref.id)
        crashed.append(store.copy())
        return ref.id

    crashed: list[MemoryStore] = []

    first = make(scripted(Reply.tools(("c1", "hire", {})), "done"), tools=[hire])
    async with System.open(store, agents=[first, child]) as system:
        ref = await system.spawn(first, id="a", labels={"team": "red"})
        await say(ref, "hi")
    await check(store)
    assert await order(store) == f"{OPEN} call(c1) born res(c1) {CLOSE}"
    (created,) = await events(store, e.LogCreated, seen[0])
    assert (created.parent, created.depth, created.labels) == ("a", 1, {"team": "red"})
    (called,) = await events(store, e.ToolCalled)
    assert called.call_id == "c1"
    again = crashed[0]
    second = make(scripted("done"), tools=[hire])
    async with System.open(again, agents=[second, child]) as system:
        await (await system.get("a")).wait_idle()
        assert seen[0] == seen[1]
        assert await order(again) == f"{OPEN} call(c1) born TR1 res(c1) SE SS1.2 H{{resume}} Q1 C* A SE TE1{{completed}}"
        before = len(await records(again)) - 1
        await (await system.get(seen[0])).dispose()
        assert await order(again, after=before) == "died{aborted}"
    await check(again)


async def test_c284_a_given_history_is_one_record_each_and_in_the_next_request() -> None:
    store = MemoryStore()
    script = scripted("well")
    agent = make(script)
    roles: tuple[Literal["user", "assistant"], ...] = ("user", "assistant", "user")
    texts = [Message(f"m{n}", role, (TextBlock(f"text {n}"),), UserSource()) for n, role in enumerate(roles)]
    async with System.open(store, agents=[agent]) as system:
        ref: AgentRef[Any] = await system.spawn(agent, id="a", history=texts)
        await say(ref, "hi")
        assert await order(store) == (
            "U(text 0) U(text 1) U(text 2) put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X Q1 C* A SE TE1{completed}"
        )
        assert [(m.role, m.text) for m in script.requests[0].messages] == [
            ("user", "text 0"),
            ("assistant", "text 1"),
            ("user", "text 2"),
            ("user", "hi"),
        ]
        assert len(await records(store)) > 4
    await check(store)
