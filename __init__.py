"""Callboard: a durable actor runtime for LLM agents.

The face: what most programs need. `callboard.actors` has all of the agents' side, `callboard.storage` logs and stores,
`callboard.actors.testing` what to test with, `callboard.net` the command line.
"""

from __future__ import annotations

from .actors import Agent, Limits, Plugin, System, ToolContext, ToolError, delegate, run_sync, tool

__all__ = ["Agent", "Limits", "Plugin", "System", "ToolContext", "ToolError", "delegate", "run_sync", "tool"]
