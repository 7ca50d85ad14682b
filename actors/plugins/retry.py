"""Retry: a request that failed for a passing reason is sent again, later each time.

The loop knows one action, "send it again"; how often and when is this policy. Only transient codes are tried again, within the
same step; attempts that a crash cut are not counted. A provider's own word on when to come back is honoured, unless it is longer
than a turn should wait: then the failure stands, so that whoever called can decide.
"""

from __future__ import annotations

import random

from ...storage.errors import TRANSIENT_CODES, UsageError
from ..answers import Failed, Resend
from ..models.model import RetryPolicy
from ..seams import Next, Plugin, SeamContext

_DOUBLINGS = 60
"""More of them change nothing: long before, the longest delay is reached."""


class Retry(Plugin):
    """Try a failed request again, with delays that double."""

    def __init__(self, *, tries: int = 5, first_s: float = 0.5, max_s: float = 10, jitter: float = 0.2) -> None:
        """Set the policy for routes whose adapter brings none of its own.

        Args:
            tries: attempts of one step in all; 0 and 1 both mean that nothing is tried again.
            first_s: the delay before the second, in seconds; it doubles.
            max_s: the longest delay; a provider that asks for more is not waited for.
            jitter: by which share a delay may differ, at random, so that many agents do not come back at once: one of our own
                is shortened by it, one that the provider asked for is lengthened.

        Raises:
            UsageError: a number is negative, or the jitter is no share.
        """
        for name, value in (("tries", tries), ("first_s", first_s), ("max_s", max_s)):
            if not value >= 0:
                raise UsageError(f"Retry({name}={value!r}) is negative; 0 is the least")
        if not 0 <= jitter <= 1:
            raise UsageError(f"Retry(jitter={jitter!r}) is no share of a delay; give a number from 0 to 1")
        self._own = RetryPolicy(tries, first_s, max_s)
        self._jitter = jitter
        self._random = random.Random()

    def __repr__(self) -> str:
        return f"Retry(tries={self._own.tries}, first_s={self._own.first_s:g}, max_s={self._own.max_s:g})"

    async def request_error(self, ctx: SeamContext, failed: Failed, next: Next[Failed, Resend | None], /) -> Resend | None:
        """Answer with a delay, if this failure may pass and there are tries left."""
        answer = await next(failed)
        if answer is not None or failed.failure.code not in TRANSIENT_CODES:
            return answer
        policy = failed.policy or self._own
        if failed.attempt >= policy.tries:
            return None
        asked = failed.failure.retry_after_s or 0.0
        if asked > policy.max_s:
            return None
        return Resend(self._delay(policy, failed.attempt, asked))

    def _delay(self, policy: RetryPolicy, attempt: int, asked: float) -> float:
        doublings = min(attempt - 1, _DOUBLINGS)
        share = self._jitter * self._random.random()
        own = min(policy.first_s * 2.0**doublings, policy.max_s) * (1 - share)
        return max(own, asked * (1 + share))
