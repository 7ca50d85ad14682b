"""`callboard approvals STATE-or-URL`: the calls that wait for a person. A folder may be in use."""

from __future__ import annotations

import argparse
import time
from collections.abc import AsyncIterator

from ...actors.values import Approval
from ...storage.opening import open_store
from ..offline import approvals_in
from .lines import ago
from .output import Output
from .problems import OK
from .where import connected, is_url


async def command(arguments: argparse.Namespace, output: Output) -> int:
    """List them, by agent."""
    if is_url(arguments.where):
        async with connected(arguments.where, arguments.token) as client:
            seen = await _show(client.approvals(arguments.prefix), output)
    else:
        async with open_store(arguments.where, readonly=True) as store:
            seen = await _show(approvals_in(store, arguments.prefix), output)
    if not seen:
        output.text(f"nothing waits for a person in {arguments.where}")
    return OK


async def _show(approvals: AsyncIterator[Approval], output: Output) -> int:
    seen = 0
    async for approval in approvals:
        seen += 1
        output.text(f"{approval.id}\n    {approval.question}\n    {approval.tool}({approval.arguments}), {_when(approval)}")
        output.value(approval)
    return seen


def _when(approval: Approval) -> str:
    now = time.time()
    asked = f"asked {ago(int((now - approval.asked.timestamp()) * 1000))} ago"
    if approval.expires is None:
        return asked
    left = approval.expires.timestamp() - now
    return f"{asked}, {'expired' if left <= 0 else f'expires in {ago(int(left * 1000))}'}"
