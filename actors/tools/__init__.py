"""Tools: functions that a model may call, with what the runtime needs to run them safely."""

from __future__ import annotations

from .bodies import BodyOutcome, Strays, run_body
from .context import LoopRunner, ToolContext, ToolPort
from .output import ToolOutput, context_messages, limit_output, to_content
from .process import Completed, run_process
from .tool import Tool, tool, tool_from_schema

__all__ = [
    "BodyOutcome",
    "Completed",
    "LoopRunner",
    "Strays",
    "Tool",
    "ToolContext",
    "ToolOutput",
    "ToolPort",
    "context_messages",
    "limit_output",
    "run_body",
    "run_process",
    "to_content",
    "tool",
    "tool_from_schema",
]
