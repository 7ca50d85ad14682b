"""The little statistics a batch needs, and no more. Pure.

Attempts at one task are not independent, so everything is computed over tasks: an attempt's score counts in the mean of its task.
Intervals are those of Student's t at 95 %. With few tasks they are wide, and say so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, stdev

from msgspec import Struct

_Z = NormalDist().inv_cdf(0.975)


class Mean(Struct, frozen=True):
    """A mean over `n` values; `half` is half the width of its 95 % interval, None with fewer than two values."""

    n: int
    mean: float
    half: float | None

    def __str__(self) -> str:
        return f"{self.mean:.3f}" + ("" if self.half is None else f" ± {self.half:.3f}")


def mean_of(values: Sequence[float]) -> Mean | None:
    """The mean of these values and how sure it is; None without any."""
    if not values:
        return None
    half = t_quantile(len(values) - 1) * stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return Mean(len(values), fmean(values), half)


def t_quantile(freedom: int) -> float:
    """The 97.5 % quantile of Student's t, by Hill's expansion; exact for one and two degrees of freedom.

    Source: G. W. Hill, Algorithm 396, Communications of the ACM 13 (1970). From three degrees on it is off by less than 0.004.
    """
    if freedom == 1:
        return math.tan(math.pi * 0.475)
    if freedom == 2:
        return 0.95 * math.sqrt(2 / (1 - 0.95**2))
    n, z = freedom, _Z
    terms = (
        z,
        (z**3 + z) / (4 * n),
        (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2),
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3),
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * n**4),
    )
    return sum(terms)


def pass_at(k: int, attempts: int, passed: int) -> float:
    """The chance that at least one of `k` attempts passes, when `passed` of `attempts` did: unbiased.

    It is 1 - C(n-c, k)/C(n, k) for c of n. Source: Chen et al., Evaluating Large Language Models Trained on Code (2021).
    """
    if attempts - passed < k:
        return 1.0
    return 1.0 - math.comb(attempts - passed, k) / math.comb(attempts, k)
