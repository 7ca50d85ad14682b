"""DBOS: a turn is a workflow, the model call and the tool are steps, on SQLite with its defaults (rollback journal, FULL)."""

from __future__ import annotations

import asyncio
from typing import Any

from dbos import DBOS
from turns import CHUNKS, HELLO, TOOL_RESULT, USE_THE_TOOL, arguments, folder, measure

_, agents, count, with_tool = arguments()
disk = folder()
url = f"sqlite:///{disk}/dbos.sqlite"
DBOS(config={"name": "bench", "system_database_url": url, "run_admin_server": False, "log_level": "ERROR"})


@DBOS.step()
async def ask_model(agent: str, history: list[str]) -> dict[str, Any]:
    """Twenty chunks; or a call, if it is asked for one."""
    if history[-1] == USE_THE_TOOL:
        return {"call": {"question": "?"}}
    return {"text": "".join(chunk for chunk in CHUNKS)}


@DBOS.step()
async def lookup(question: str) -> str:
    """Look something up."""
    return TOOL_RESULT


@DBOS.workflow()
async def run(agent: str, text: str) -> str:
    """Until the model has an answer."""
    history = [text]
    while True:
        answer = await ask_model(agent, history)
        if "text" in answer:
            return str(answer["text"])
        history.append(await lookup(**answer["call"]))


async def turn(agent: str, tool: bool) -> str:
    """One workflow."""
    return await run(agent, USE_THE_TOOL if tool else HELLO)


async def main() -> None:
    """One sample."""
    DBOS.launch()
    await measure(turn, agents, count, with_tool, disk=disk)
    DBOS.destroy()


asyncio.run(main())
