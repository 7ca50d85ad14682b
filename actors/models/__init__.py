"""Models: what an adapter is, how its chunks become an answer, how a stream is read, and how a name finds its adapter."""

from __future__ import annotations

from .assembler import NO_DISPATCH, Assembled, Assembler, without_calls
from .model import Model, Prepared, RetryPolicy, apply_defaults

__all__ = [
    "NO_DISPATCH",
    "Assembled",
    "Assembler",
    "Model",
    "Prepared",
    "RetryPolicy",
    "apply_defaults",
    "without_calls",
]
