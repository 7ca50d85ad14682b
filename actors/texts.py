"""Text from outside, made fit for the log.

Providers and tools now and then give lone surrogates: half of an emoji, cut by an escape in JSON. Python holds such a text,
UTF-8 cannot, and the log is UTF-8: unrepaired, the record could be appended and never be committed.
"""

from __future__ import annotations


def well_formed(text: str) -> str:
    """The text with every lone surrogate replaced by U+FFFD; halves that belong together are joined."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
