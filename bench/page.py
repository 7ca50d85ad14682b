"""The page of figures: `python -m bench.page` writes the tables and plots of docs/benchmarks.md from docs/benchmarks.json.

    python -m bench --peers ... --out docs/benchmarks.json     take them
    python -m bench.page                                       write them down

The words of the page are written by hand; what stands between a pair of marks is written from the run that was kept, so that
every figure on the page is one of one run, on one machine, on one day.
"""

from __future__ import annotations

import re
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from . import aims
from .compare import Run
from .figures import Rounds, figure
from .measure import middle
from .peers import standings
from .peers.cases import PEERS
from .plots import draw

DOCS = Path(__file__).resolve().parent.parent / "docs"


def rounds_of(run: Run) -> Rounds:
    """The samples of a run that was kept, by case."""
    return {figures.case: figures.samples for figures in run.figures}


def machine(run: Run) -> str:
    """When and on what, and how noisy it was."""
    noise = [s.others for figures in run.figures for s in figures.samples if s.others is not None]
    where = ", ".join(f"{name} {value}" for name, value in run.machine.items())
    rounds = max(len(figures.samples) for figures in run.figures)
    return (
        f"Taken on {time.strftime('%d %B %Y', time.gmtime(run.time))}, {rounds} interleaved rounds. {where}. While it was taken, "
        f"other programs used {statistics.median(noise):.0%} of the machine's CPU (median; at most {max(noise):.0%})."
    )


def cases(run: Run) -> str:
    """Our own cases."""
    rows = [
        "| case | per s | share of the floor | by CPU | p50 ms | p99 ms | CPU µs | flushes | file B | others |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for figures in run.figures:
        if any(figures.case.startswith(peer) for peer in PEERS):
            continue
        m, shares = middle(figures.samples), figures.shares
        share = f"{statistics.median(shares):.2f} ({min(shares):.2f}-{max(shares):.2f})" if shares else ""
        cells = [figures.case, figure(m.per_s), share, figure(figures.share_by_cpu, 2)]
        cells += [figure(m.p50_ms, 2), figure(m.p99_ms, 2), figure(m.cpu_us)]
        cells += [figure(m.flushes, 2), figure(m.file_bytes), figure(m.others, 2)]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def by_cpu(run: Run) -> str:
    """What the CPU of our turn is to that of each peer's: steadier than a clock on a machine that others use."""
    rounds, labels = rounds_of(run), ("turn x200", "tool x200")
    rows = ["| peer's CPU for a turn over ours | turn x200 | tool x200 |", "|---|---|---|"]
    for peer in PEERS:
        cells = [
            f"{middle(rounds[f'{peer} {label}']).cpu_us / middle(rounds[label]).cpu_us:.2g}"
            for label in labels
            if rounds.get(f"{peer} {label}") and rounds.get(label)
        ]
        if cells:
            rows.append(f"| {peer} | {' | '.join(cells)} |")
    return "\n".join(rows)


def standing(run: Run) -> str:
    """Where we stand among peers."""
    rounds = rounds_of(run)
    return standings.table(rounds) + "\n\n" + "\n".join(standings.aims(rounds))


PARTS: Mapping[str, Callable[[Run], str]] = {
    "machine": machine,
    "cases": cases,
    "aims": lambda run: aims.table(list(aims.results(rounds_of(run)))),
    "peers": standing,
    "peers by CPU": by_cpu,
}
"""Mark → what stands there."""


def written(text: str, run: Run) -> str:
    """The page with its parts made anew.

    Raises:
        ValueError: a mark is missing.
    """
    for name, part in PARTS.items():
        between = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        pieces = between.split(text)
        if len(pieces) != 4:
            raise ValueError(f"the page needs the marks of {name!r} once, and has them {len(pieces) // 3} times")
        text = "".join((pieces[0], pieces[1], part(run), "\n", pieces[2], pieces[3]))
    return text


def main() -> int:
    """Write the page and its pictures."""
    run = msgspec.json.decode((DOCS / "benchmarks.json").read_bytes(), type=Run)
    page = DOCS / "benchmarks.md"
    page.write_text(written(page.read_text(encoding="utf-8"), run), encoding="utf-8")
    for path in draw(rounds_of(run), DOCS / "images"):
        print(path.relative_to(DOCS.parent))
    return 0


if __name__ == "__main__":
    sys.exit(main())
