"""Compaction: a summary takes the place of what was said long ago, before the model has no room for what is said now.

`plugin` decides when and writes notes; the rest is pure: `ranges` chooses what goes, `extract` shortens it without a model,
`prompt` is what a model is asked.
"""

from __future__ import annotations

from .plugin import Compaction

__all__ = ["Compaction"]
