"""C178: a commit of which only a part reached the disk, as after a power cut, is none; what was acknowledged before is whole.

LMDB writes the pages of a commit first and the page that names them last, and reuses none that the commit before still needs. So
what a cut leaves is the file of before, with any of the new pages in any state.
"""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from callboard.storage import open_store
from callboard.storage.conformance_kit import batch, create, note, seqs, write
from callboard.storage.engines.lmdb import LmdbStore

PAGE = 4096
META = 2
"""Pages at the beginning that name the tree of the last commit, and of the one before."""


def pages(data: bytes) -> list[bytes]:
    return [data[at : at + PAGE] for at in range(0, len(data), PAGE)]


def torn(before: bytes, after: bytes, dice: random.Random) -> bytes:
    """The file between two commits: of the pages that the second wrote some are there, some are not, and some are half there."""
    old, new = pages(before), pages(after)
    old += [b"\0" * PAGE] * (len(new) - len(old))
    found = list(old)
    for number in range(META, len(new)):
        if new[number] != old[number]:
            cut = dice.choice((0, PAGE, dice.randrange(0, PAGE, 512)))
            found[number] = new[number][:cut] + old[number][cut:]
    return b"".join(found)


@pytest.mark.parametrize("seed", range(4))
async def test_c178_a_commit_that_is_half_on_disk_is_none(seed: int, tmp_path: Path) -> None:
    dice, folder = random.Random(seed), tmp_path / "whole"
    folder.mkdir()
    store = await LmdbStore.open(folder)
    epoch, last = await create(store, "a"), 0
    images = [(0, (folder / "data.mdb").read_bytes())]
    for _ in range(8):
        count = dice.randint(1, 5)
        await write(store, [batch("a", epoch, [note(last + n, "x" * dice.choice((10, 5_000))) for n in range(1, count + 1)])])
        last += count
        images.append((last, (folder / "data.mdb").read_bytes()))
    await store.aclose()
    for number, ((acknowledged, before), (_, after)) in enumerate(itertools.pairwise(images)):
        cut = tmp_path / f"cut-{number}"
        cut.mkdir()
        (cut / "data.mdb").write_bytes(torn(before, after, dice))
        async with open_store(cut, readonly=True) as found:
            assert await seqs(found, "a") == list(range(acknowledged + 1))
        async with open_store(cut) as found:
            epoch = await found.own("a")
            await write(found, [batch("a", epoch, [note(acknowledged + 1, "and on")])])
            assert await seqs(found, "a") == list(range(acknowledged + 2))
