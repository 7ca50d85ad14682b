"""Models: what an adapter is, how its chunks become an answer, how a stream is read, and how a name finds its adapter."""

from __future__ import annotations

from .assembler import NO_DISPATCH, Assembled, Assembler, without_calls
from .connecting import connect_s
from .model import Model, Prepared, RetryPolicy, apply_defaults
from .registry import BUILT_IN, Models, Resolved, no_adapter
from .soundness import sound
from .streaming import read_stream

__all__ = [
    "BUILT_IN",
    "NO_DISPATCH",
    "Assembled",
    "Assembler",
    "Model",
    "Models",
    "Prepared",
    "Resolved",
    "RetryPolicy",
    "apply_defaults",
    "connect_s",
    "no_adapter",
    "read_stream",
    "sound",
    "without_calls",
]
