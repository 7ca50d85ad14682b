"""How anything is measured here: a clock, the CPU of this process, and how much the rest of the machine was in the way.

A figure without its noise is worth little on a shared machine. So every sample carries the share of the CPU that others used
while it was taken, and waits for a quiet moment first. Where there is no /proc (not Linux), noise is unknown and is said to be.
"""

from __future__ import annotations

import os
import platform
import resource
import statistics
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from msgspec import Struct

_STAT = Path("/proc/stat")
_IO = Path("/proc/self/io")


class Sample(Struct, frozen=True, omit_defaults=True):
    """One repetition of a case. `per_s` is what it is about; times of single operations in milliseconds.

    `cpu_us` is of all threads, for each operation; `others` the share of the machine's CPU that other processes used (0.5 on
    two cores: one of them), None if unknown; `flushes`, `file_bytes` and `written_bytes` are for each operation too.
    """

    per_s: float
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    cpu_us: float = 0.0
    others: float | None = None
    rss_mb: float = 0.0
    flushes: float | None = None
    file_bytes: float | None = None
    written_bytes: float | None = None
    held_bytes: float | None = None
    """Memory that Python holds for each agent."""
    last_to_first: float | None = None
    """CPU of the last part (a twentieth of a year of chat) for each second of the first."""
    grown_mb: float | None = None
    """Memory that the process had more after the last part than after the first."""
    largest: float | None = None
    """Tokens of the largest request that was answered."""
    points: tuple[tuple[float, float], ...] | None = None
    """A curve: what grew, and what one operation cost there."""


DISTURBED = 0.4
"""The share of the machine's CPU that others may have used, as the median of a case's repetitions, for its rate to count."""


def quiet(samples: Sequence[Sample]) -> bool:
    """Whether rates of these repetitions say anything; where noise is unknown, they are believed."""
    noise = [s.others for s in samples if s.others is not None]
    return not noise or statistics.median(noise) <= DISTURBED


class Meter:
    """Measures a block: wall and CPU time, bytes written, and what others used of the machine."""

    def __enter__(self) -> Self:
        self._ticks, self._written = _ticks(), _written()
        self._cpu, self._wall = time.process_time(), time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.wall_s = time.perf_counter() - self._wall
        self.cpu_s = time.process_time() - self._cpu
        self.written = _written() - self._written
        self.others = _others(self._ticks, _ticks(), self.cpu_s)

    def sample(self, latencies_s: Sequence[float], *, flushes: int | None = None, file_bytes: int | None = None) -> Sample:
        """The block as a sample of as many operations as there are latencies."""
        count = len(latencies_s)
        return Sample(
            per_s=count / self.wall_s,
            p50_ms=statistics.median(latencies_s) * 1e3,
            p99_ms=percentile(latencies_s, 0.99) * 1e3,
            cpu_us=self.cpu_s / count * 1e6,
            others=self.others,
            rss_mb=peak_rss_mb(),
            flushes=None if flushes is None else flushes / count,
            file_bytes=None if file_bytes is None else file_bytes / count,
            written_bytes=self.written / count,
        )


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def middle(samples: Sequence[Sample]) -> Sample:
    """The median of each figure over the repetitions; of the noise, the worst."""
    noise = [s.others for s in samples if s.others is not None]

    def median(name: str) -> float | None:
        known = [v for s in samples if (v := getattr(s, name)) is not None]
        return statistics.median(known) if known else None

    figures = {name: median(name) for name in Sample.__struct_fields__ if name not in ("others", "points")}
    curves = [s.points for s in samples if s.points is not None]
    return msgspec.convert({**figures, "others": max(noise) if noise else None, "points": middle_curve(curves)}, Sample)


def middle_curve(curves: Sequence[Sequence[tuple[float, float]]]) -> tuple[tuple[float, float], ...] | None:
    """The median at each place of curves that were taken at the same places."""
    if not curves:
        return None
    return tuple((at[0][0], statistics.median(y for _, y in at)) for at in zip(*curves, strict=True))


# -- the machine


class Beside:
    """How much of the machine others used while processes that this one started were at work, and nothing else of its own."""

    def __enter__(self) -> Self:
        self._ticks, self._cpu = _ticks(), _cpu_of_children()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.others = _others(self._ticks, _ticks(), _cpu_of_children() - self._cpu)


def wait_until_quiet(*, longest_s: float, share: float = 0.15) -> None:
    """Wait until other processes use less than `share` of the machine, or for `longest_s`."""
    end = time.monotonic() + longest_s
    while _STAT.exists() and time.monotonic() < end:
        before = _ticks()
        time.sleep(0.3)
        noise = _others(before, _ticks(), 0.0)
        if noise is None or noise < share:
            return


def machine() -> dict[str, str]:
    """What a figure depends on: processor, cores, system, Python and the versions of what is underneath."""
    names = ("trio", "lmdb", "msgspec")
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "callboard": version("callboard"),
        **{name: version(name) for name in names},
    }


def resident_mb() -> float:
    """The memory that is this process's own now, without the pages of files that it has mapped; 0 where that is unknown."""
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="ascii").splitlines() if status.exists() else []
    own = next((line.split()[1] for line in lines if line.startswith("RssAnon:")), "0")
    return int(own) * 1024 / 1e6


def peak_rss_mb() -> float:
    """The most memory this process has had so far."""
    unit = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def folder_bytes(folder: Path) -> int:
    """What the files of a folder take on disk; holes are not counted."""
    return sum(p.stat().st_blocks * 512 for p in folder.rglob("*") if p.is_file())


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _ticks() -> tuple[int, int]:
    """Busy and all clock ticks of the machine since it started; zeros where there is no /proc."""
    if not _STAT.exists():
        return 0, 0
    with _STAT.open(encoding="ascii") as file:
        values = [int(v) for v in file.readline().split()[1:9]]
    idle = values[3] + values[4]
    return sum(values) - idle, sum(values)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _others(before: tuple[int, int], after: tuple[int, int], own_s: float) -> float | None:
    total = after[1] - before[1]
    if total <= 0:
        return None
    own = own_s * os.sysconf("SC_CLK_TCK")
    return round(max(0.0, (after[0] - before[0] - own) / total), 2)


def _written() -> int:
    """Bytes that this process has written; 0 where that is unknown. (Linux also counts what it made dirty in the page cache, but
    by the size of its folios: a page of 4 KB beside a value of a megabyte counts as a megabyte there.)"""
    if not _IO.exists():
        return 0
    lines = dict(line.split(": ") for line in _IO.read_text(encoding="ascii").splitlines())
    return int(lines["wchar"])
