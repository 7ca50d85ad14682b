"""What programs that use Callboard need for their own tests: a scripted model, and a context for a tool alone."""

from __future__ import annotations

from .contexts import tool_context
from .scripted import Reply, ScriptedModel

__all__ = ["Reply", "ScriptedModel", "tool_context"]
