"""What programs that use Callboard need for their own tests: a scripted model, a check of an adapter, a context for a tool alone,
crashes, a clock."""

from __future__ import annotations

from .checking import check_model
from .clocks import trio_wall
from .contexts import tool_context
from .crashes import Crash, every_crash
from .scripted import Reply, ScriptedModel

__all__ = ["Crash", "Reply", "ScriptedModel", "check_model", "every_crash", "tool_context", "trio_wall"]
