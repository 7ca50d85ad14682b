"""Adapters for real models: `OpenAI` and everything that speaks its chat completions, and `Anthropic`.

`openai:NAME` and `anthropic:NAME` find them by the entry points of this package; another server is an instance that is passed to
`System.open(models=)`. Each is three modules: the adapter, its requests and its streams, the last two pure. `connection` is the
way through the provider's SDK, which is imported at the first request; `sse`, `parts`, `schemas`, `failures` and `reading` are
what both protocols share.
"""

from __future__ import annotations

from .anthropic import Anthropic
from .openai import OpenAI

__all__ = ["Anthropic", "OpenAI"]
