"""Kill -9 a system that answers chats over a webhook, often between a send and its confirmation, and count what arrives.

    python tests/torture/kill_delivery.py [--kills 300] [--seed 1] [--chats 6]

The peer (`webhook_peer.py`, a process of its own that nobody kills) fails, hangs, takes a reply and goes away, answers twice. A
life is a fresh folder in which messages come in for some chats and are answered. Its kills fall in turn before a commit that
holds an `outbox/sent`, behind one, at any commit, and at random moments; the next process goes on with the same folder, and is
sent the same messages again. The last one runs through. Then every reply in the logs has arrived, nothing is confirmed that has
not, what came twice has one id and one text, and in each chat replies came in the order of the log.

Every process is a fork of this one, which holds no thread and no store.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec
import trio
from kill_agents import CALM_S, EVERY_S, Forked, die
from msgspec import Struct
from tree_checks import Failed
from webhook_peer import PeerLedger, Taken, serve_badly

from callboard import Agent, System
from callboard.actors.channels import WebhookChannel
from callboard.actors.testing import Reply, ScriptedModel
from callboard.storage import StoreError, open_store, verify
from callboard.storage import events as e
from callboard.storage.records import Record
from callboard.storage.store import Batch, Results, Store, Unit
from callboard.storage.testing import FaultyStore

MESSAGES = 4
"""For each chat, in one life."""
KILLS_A_LIFE = 6
Place = Literal["before", "behind"]


class At(Struct, frozen=True):
    """Kill at the commit of this number, from 1; counting those that confirm a reply, or all."""

    commit: int
    place: Place
    confirming: bool


class Doomed(FaultyStore):
    """A store whose process kills itself at one of its commits."""

    def __init__(self, inner: Store, at: At) -> None:
        super().__init__(inner)
        self._left, self._at = at.commit, at

    async def commit(self, units: Sequence[Unit]) -> Results:
        """As the inner store, unless it is the one."""
        self._left -= not self._at.confirming or _confirms(units)
        if self._left == 0 and self._at.place == "before":
            die()
        results = await self.inner.commit(units)
        if self._left == 0:
            die()
        return results


def _confirms(units: Sequence[Unit]) -> bool:
    parts = (part for unit in units for part in unit if isinstance(part, Batch))
    return any(isinstance(item, Record) and isinstance(item.event, e.OutboxSent) for part in parts for item in part.items)


# -- the process that is killed


def answer(request: Any) -> Reply:
    """What the model says: whom it answers."""
    return Reply.text(f"answer to {request.messages[-1].text}", parts=3)


async def work(folder: Path, port: int, chats: Sequence[str], at: At | None) -> None:
    """Take the messages (again), answer them, and wait until every reply is out; or die on the way."""
    logging.getLogger("callboard").setLevel(logging.CRITICAL)
    hook = WebhookChannel(Agent("helper", model=ScriptedModel(answer), plugins=()), url=f"http://127.0.0.1:{port}/in")
    hook.timeout_s, hook.first_s, hook.max_s, hook.tries = 0.25, 0.005, 0.05, 10_000
    async with open_store(folder / "state") as engine:
        store = engine if at is None else Doomed(engine, at)
        async with System.open(store, channels={"hook": hook}) as system:
            async with trio.open_nursery() as nursery:
                for chat in chats:
                    nursery.start_soon(_talk, hook, chat)
            for chat in chats:
                await (await system.get(f"hook:{chat}")).wait_idle()
            await _until_sent(store, chats)


async def _until_sent(store: Store, chats: Sequence[str]) -> None:
    for chat in chats:
        head = await store.head(f"hook:{chat}")
        while head is None or head.summary.outbox:
            await trio.sleep(0.002)
            head = await store.head(f"hook:{chat}")


async def _talk(hook: WebhookChannel, chat: str) -> None:
    for number in range(MESSAGES):
        body = msgspec.json.encode({"chat": chat, "text": f"{chat}/{number}", "message": str(number), "id": str(number)})
        await hook.wait_there()
        await hook.receive({}, body)


# -- the process that looks


async def examine(folder: Path, chats: Sequence[str], over: bool) -> dict[str, list[str]]:
    """The replies in the logs, by chat: ids in the order in which they were put.

    Raises:
        Failed: something is confirmed that never arrived; or, if it is over, something was lost.
    """
    try:
        async with open_store(folder / "state", readonly=True) as store:
            puts = {chat: await _look_at(store, folder, chat, over) for chat in chats}
            if over and not (report := await verify(store)).ok:
                raise Failed("\n".join(map(str, report.problems)))
    except StoreError as error:
        if over or "there is no store" not in error.message:  # killed while it was being created
            raise
        return {}
    return puts


async def _look_at(store: Store, folder: Path, chat: str, over: bool) -> list[str]:
    if await store.head(f"hook:{chat}") is None:
        return []
    events = [record.event async for record in store.read(f"hook:{chat}")]
    puts = [event.delivery for event in events if isinstance(event, e.OutboxPut)]
    sent = [event.delivery for event in events if isinstance(event, e.OutboxSent)]
    arrived = {taken.id for taken in PeerLedger(folder.parent / "ledger").read()}
    if lost := set(sent) - arrived:
        raise Failed(f"{chat}: confirmed, and never arrived: {sorted(lost)}")
    if over:
        _look_whole(chat, events, puts, sent)
    return puts


def _look_whole(chat: str, events: Sequence[Any], puts: Sequence[str], sent: Sequence[str]) -> None:
    taken = [event.message.id for event in events if isinstance(event, e.InboxPut)]
    claimed = [id for event in events if isinstance(event, e.InboxClaim) for id in event.ids]
    if not taken == claimed == [str(number) for number in range(MESSAGES)]:
        raise Failed(f"{chat}: messages {taken} came in, {claimed} were taken")
    if sorted(sent) != sorted(puts):
        raise Failed(f"{chat}: {len(puts)} replies, {len(sent)} confirmations")
    ends = [event.reason.kind for event in events if isinstance(event, e.TurnEnd)]
    if set(ends) != {"completed"}:
        raise Failed(f"{chat}: turns ended {ends}")


def arrivals(ledger: Sequence[Taken], puts: dict[str, list[str]]) -> Counter[str]:
    """Compare what arrived with what was put; figures.

    Raises:
        Failed: something did not arrive, came as something else, or out of order.
    """
    figures: Counter[str] = Counter()
    for chat, ids in puts.items():
        came = [taken for taken in ledger if taken.chat == chat]
        first = list(dict.fromkeys(taken.id for taken in came))
        if first != ids:
            raise Failed(f"{chat}: put {ids}, arrived {first}")
        texts = {(taken.id, taken.text) for taken in came}
        if len(texts) != len(ids):
            raise Failed(f"{chat}: one id with two texts: {sorted(texts)}")
        figures["replies"] += len(ids)
        figures["duplicates"] += len(came) - len(ids)
        places = [ids.index(taken.id) for taken in came]
        figures["overtaken duplicates"] += sum(later < before for before, later in itertools.pairwise(places))
    return figures


# -- the process that kills


class Torture:
    """Lives and kills, counted."""

    def __init__(self, folder: Path, *, kills: int, seed: int, chats: int, say: Callable[[str], None]) -> None:
        self.folder, self.wanted, self.chats, self.say = folder, kills, chats, say
        self.random = random.Random(seed)
        self.kills: Counter[str] = Counter()
        self.figures: Counter[str] = Counter()
        self.lives = 0
        self._confirmations, self._commits = itertools.cycle(range(1, 9)), itertools.cycle(range(1, 25))
        self._began = self._said = time.monotonic()
        listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(listening.getsockname()[1])
        self.ledger = PeerLedger(folder / "ledger")
        self._peer = Forked(lambda: trio.run(serve_badly, listening, self.ledger, seed))
        listening.close()

    def run(self) -> None:
        """Kill as often as wanted.

        Raises:
            Failed: a reply was lost, changed or overtaken.
        """
        try:
            while self.kills.total() < self.wanted:
                self._life()
                self.lives += 1
        finally:
            os.kill(self._peer.pid, signal.SIGKILL)
            self._peer.end(CALM_S)

    def _life(self) -> None:
        folder = self.folder / f"life-{self.lives}"
        folder.mkdir()
        chats = [f"{self.lives}-{number}" for number in range(self.chats)]
        for number in range(min(KILLS_A_LIFE, self.wanted - self.kills.total())):
            kind, at = self._point(number)
            process = Forked(lambda at=at: trio.run(work, folder, self.port, chats, at))  # type: ignore[misc]
            if at is None:
                process.kill_after(self.random.uniform(0.02, 0.4))
            if process.end(CALM_S) is not None:
                break
            self.kills[kind] += 1
            self._look(folder, chats, over=False)
            self._progress()
        if Forked(lambda: trio.run(work, folder, self.port, chats, None)).end(CALM_S) is None:
            raise Failed("a process that nobody killed died")
        self.figures.update(arrivals(self.ledger.read(), self._look(folder, chats, over=True)))

    def _point(self, number: int) -> tuple[str, At | None]:
        kinds: list[tuple[str, At | None]] = [
            ("before a confirmation", At(next(self._confirmations), "before", True)),
            ("behind a confirmation", At(next(self._confirmations), "behind", True)),
            ("at a commit", At(next(self._commits), self.random.choice(("before", "behind")), False)),
            ("at a random moment", None),
        ]
        return kinds[(number + self.lives) % len(kinds)]

    def _look(self, folder: Path, chats: Sequence[str], *, over: bool) -> dict[str, list[str]]:
        if not (folder / "state").exists():
            return {}
        said: Any = Forked(lambda: trio.run(examine, folder, chats, over)).end(CALM_S)
        if said is None:
            raise Failed("the process that looks died")
        return dict(said)

    def _progress(self) -> None:
        if time.monotonic() - self._said < EVERY_S:
            return
        self._said, kills = time.monotonic(), self.kills.total()
        rate = kills / (self._said - self._began)
        self.say(f"{kills} of {self.wanted} kills, {rate:.1f} a second, {(self.wanted - kills) / rate / 60:.1f} minutes left")

    def closing(self) -> str:
        """One line of figures."""
        kinds = ", ".join(f"{times} {kind}" for kind, times in sorted(self.kills.items()))
        moods = Counter(taken.mood for taken in self.ledger.read())
        took = ", ".join(f"{times} {mood}" for mood, times in sorted(moods.items()))
        return (
            f"{datetime.now(UTC):%Y-%m-%d}: {self.kills.total()} kills ({kinds}) in {self.lives} lives of {self.chats} chats, "
            f"{time.monotonic() - self._began:.0f} s: {self.figures['replies']} replies, 0 lost, 0 changed, 0 out of order, "
            f"{self.figures['duplicates']} arrived again under their id, {self.figures['overtaken duplicates']} of them late "
            f"({took})"
        )


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--chats", type=int, default=6)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="callboard-deliveries-"))
    torture = Torture(
        folder, kills=options.kills, seed=options.seed, chats=options.chats, say=lambda line: print(line, flush=True)
    )
    try:
        torture.run()
    except Failed as failure:
        print(f"FAILED (seed {options.seed}, behind {torture.kills.total()} kills, kept in {folder}): {failure}", flush=True)
        return 1
    print(torture.closing(), flush=True)
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
