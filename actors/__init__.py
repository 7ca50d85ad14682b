"""The second floor: agents as actors.

`Agent` defines, `System` runs, `AgentRef` is the handle. `tool` and `delegate` are what agents can do; `Plugin` and its answers
are where policies step in; `Model` is an adapter. Inside: `driver` drains turns, `turn` walks the states, `boundary`, `step`,
`attempt` and `batch` are its parts, `closing` its one exit; `registry` opens logs, `runtime` holds the layers together.
"""

from __future__ import annotations

from ..storage.errors import ModelError, ToolError
from .agent import Agent
from .answers import Allow, Answer, Ask, Boundary, Deny, Enter, LimitReached, Proposal, Reject, Replace, Resend
from .delegation import delegate
from .limits import Limits
from .models.model import Model, Prepared
from .ref import AgentRef
from .run import run_sync
from .seams import Plugin
from .system import System
from .tools import ToolContext, ToolOutput, tool
from .values import AgentInfo, Approval, Delivery, Delta, Inbound, Outcome, Receipt, Timer, Wait

__all__ = [
    "Agent",
    "AgentInfo",
    "AgentRef",
    "Allow",
    "Answer",
    "Approval",
    "Ask",
    "Boundary",
    "Delivery",
    "Delta",
    "Deny",
    "Enter",
    "Inbound",
    "LimitReached",
    "Limits",
    "Model",
    "ModelError",
    "Outcome",
    "Plugin",
    "Prepared",
    "Proposal",
    "Receipt",
    "Reject",
    "Replace",
    "Resend",
    "System",
    "Timer",
    "ToolContext",
    "ToolError",
    "ToolOutput",
    "Wait",
    "delegate",
    "run_sync",
    "tool",
]
