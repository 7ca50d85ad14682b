"""A refund that a person has to allow: asked today, the process killed, answered tomorrow, done once.

    python p04_approval.py serve        the shop's agents, and a question from a customer
    python p04_approval.py clerk        lists what waits, and allows it
    callboard approvals ws://127.0.0.1:8000 --token ...        the same from the command line

While a call waits for its answer it costs no task and no model; kill the first program and start it again, and it still waits.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path

import trio

from callboard import Agent, System, ToolContext, tool
from callboard.actors import Ask, SeamContext, ToolCall
from callboard.net import Server, connect, serve

PORT = int(os.environ.get("SHOP_PORT", "8000"))
TOKEN = os.environ.get("SHOP_TOKEN", "for-this-example-only")
CUSTOMER = "Order 17 came broken, I want my 80 euros back."


class Payments:
    """Stands for a payment provider: a line in a file for each refund. The same key again is the same refund."""

    def __init__(self, book: Path) -> None:
        self._book = book

    async def refund(self, order: str, cents: int, *, idempotency_key: str) -> None:
        """Pay, unless that was done under this key."""
        lines = self._book.read_text().splitlines() if self._book.exists() else []
        if not any(json.loads(line)["key"] == idempotency_key for line in lines):
            with self._book.open("a") as book:
                book.write(json.dumps({"key": idempotency_key, "order": order, "cents": cents}) + "\n")


def big(ctx: SeamContext, call: ToolCall) -> Ask | None:
    """Ask a person about more than 50 euros; nobody has to decide about less."""
    if call.args["cents"] <= 5000:
        return None
    return Ask(f"Refund {call.args['cents'] / 100:.2f} EUR for order {call.args['order']}?", expires_s=3 * 86400)


@tool(replay="ask", approval=big)
async def refund(ctx: ToolContext[Payments], order: str, cents: int) -> str:
    """Give money back."""
    await ctx.deps.refund(order, cents, idempotency_key=ctx.effect_key)
    return "refunded"


support: Agent[Payments, str] = Agent(
    "support", model="openai:gpt-5", system="You help customers of a shop.", tools=[refund], deps=Payments
)


async def server() -> None:
    """Process A: serve, and pass on what a customer wrote. The message has an id, so a restart does not send it twice."""
    tokens = {TOKEN: {"scopes": ["admin"]}}
    async with System.open("state", agents=[support], deps=Payments(Path("payments.jsonl"))) as system, trio.open_nursery() as n:
        door: Server = await n.start(partial(serve, system, port=PORT, tokens=tokens))
        print(f"serving at {door.url}", flush=True)
        desk = await system.spawn(support, id="desk/17")
        print((await desk.ask(CUSTOMER, message_id="order-17")).text, flush=True)
        await trio.sleep_forever()


async def clerk() -> None:
    """Process B, the next morning."""
    async with connect(f"ws://127.0.0.1:{PORT}", token=TOKEN) as client:
        async for a in client.approvals():  # .id .agent .tool .arguments .question .expires .asked
            print(a.agent, a.question)
            await client.answer(a.id, "allow", by="ann@shop")  # or "deny", or "reply": text is the result, the body is not run
        desk = await client.open("desk/17")
        print((await desk.outcome("order-17")).text)


if __name__ == "__main__":
    trio.run({"serve": server, "clerk": clerk}[sys.argv[1]])
