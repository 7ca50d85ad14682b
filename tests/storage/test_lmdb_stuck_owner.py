"""Whoever only reads never waits for the owner, also not for one that stands still in the middle of a transaction."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import trio

from callboard.storage.conformance_kit import batch, created
from callboard.storage.opening import open_store

HOLD = "import lmdb, sys; t = lmdb.open(sys.argv[1], max_dbs=20).begin(write=True); print('held', flush=True); sys.stdin.read()"
READ = """
import sys, trio
from callboard.storage import open_store

async def read():
    async with open_store(sys.argv[1], readonly=True) as store:
        print([head.agent for head in await store.agents()])

trio.run(read)
"""


async def write(folder: Path) -> None:
    """A store with one agent."""
    async with open_store(folder) as store:
        assert await store.commit([[batch("a", await store.own("a"), [created("a")])]]) == [None]


def test_a_store_opens_for_reading_while_its_owner_is_stuck_in_a_transaction(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    trio.run(write, folder)
    command = [sys.executable, "-P", "-c"]
    with subprocess.Popen([*command, HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "held\n"
        # A reader that waits for a lock cannot be cancelled, so it is a process that can be killed.
        said = subprocess.run([*command, READ, str(folder)], capture_output=True, text=True, timeout=120, check=False)
        owner.communicate("")
    assert said.stdout == "['a']\n", said.stderr


async def test_a_writer_joins_the_readers_of_its_process(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    await write(folder)
    async with open_store(folder, readonly=True) as reader:
        log = reader.read("a")
        async with open_store(folder) as store:
            assert await store.commit([[batch("b", await store.own("b"), [created("b")])]]) == [None]
            assert [head.agent for head in await reader.agents()] == ["a", "b"]
        assert [record.type async for record in log] == ["log/created"]
        async with open_store(folder) as again:
            assert await again.commit([[batch("c", await again.own("c"), [created("c")])]]) == [None]
        assert [head.agent for head in await reader.agents()] == ["a", "b", "c"]
