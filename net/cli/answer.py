"""`callboard answer STATE-or-URL ID allow|deny|reply --by NAME`: a person's word on a call that waits for it."""

from __future__ import annotations

import argparse

from ...storage.errors import StoreInUse
from ...storage.opening import open_store
from ..offline import answer_in
from .output import Output
from .problems import IN_USE, OK, Refused
from .where import connected, is_url


async def command(arguments: argparse.Namespace, output: Output) -> int:
    """Answer, and say so."""
    where, id, verdict, text = arguments.where, arguments.id, arguments.verdict, arguments.text
    if verdict == "reply" and text is None:
        raise Refused("a reply is the call's result: give it with --text")
    if is_url(where):
        async with connected(where, arguments.token) as client:
            await client.answer(id, verdict, by=arguments.by, text=text)
        output.text(f"answered {id}: {verdict}")
    else:
        await _in_folder(arguments)
        output.text(f"answered {id}: {verdict}; the turn goes on when a program opens {where} again")
    output.value({"id": id, "verdict": verdict, "by": arguments.by})
    return OK


async def _in_folder(arguments: argparse.Namespace) -> None:
    async with open_store(arguments.where, readonly=True):
        pass  # a folder that is not there is not made
    try:
        async with open_store(arguments.where) as store:
            await answer_in(store, arguments.id, arguments.verdict, by=arguments.by, text=arguments.text)
    except StoreInUse as error:
        owner = f"process {error.pid}" if error.pid is not None else "another process"
        raise Refused(
            f"{owner} runs the agents of {arguments.where}, and takes answers itself: give the URL at which it serves "
            "(ws://...) in the place of the folder, or stop it first",
            code=IN_USE,
        ) from error
