"""What the model reads of a call that gave no result of its own: a code for programs, and one text for each.

The batch, the pipeline and the exit all write such results; whoever reads two of them must not wonder whether they differ.
"""

from __future__ import annotations

from ..answers import CallResult

OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"
ABORTED = "ABORTED"
ABORTED_BEFORE_DISPATCH = "ABORTED_BEFORE_DISPATCH"
NOT_STARTED = "NOT_STARTED"
TIMEOUT = "TIMEOUT"
ABANDONED = "ABANDONED"

TEXTS = {
    OUTCOME_UNKNOWN: "The process ended while this call ran; whether it took effect is unknown. Check before you repeat it.",
    ABORTED: "The call was cut short by a cancel; it may have taken effect in part.",
    ABORTED_BEFORE_DISPATCH: "The turn was cancelled before this call began; nothing was done.",
    NOT_STARTED: "The turn ended before this call began; nothing was done.",
    TIMEOUT: "The tool took too long and was stopped; it may have taken effect in part.",
    ABANDONED: "The tool ignored its cancellation and was given up; it may still be running.",
}


def verdict(code: str) -> CallResult:
    """The error result of this code."""
    return CallResult.of(TEXTS[code], error=code)
