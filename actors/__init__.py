"""The second floor: agents as actors.

`Agent` defines, `System` runs, `AgentRef` is the handle. `tool` and `delegate` are what agents can do; `Plugin` is where policies
step in, with what its seams are given (`SeamContext`, `Boundary`, `ToolCall`, ...) and what they answer (`Enter`, `Deny`, ...);
`Model` is an adapter. Inside: `driver` drains turns, `turn` walks the states, `boundary`, `step`,
`attempt` and `batch` are its parts, `closing` its one exit; `registry` opens logs, `runtime` holds the layers together.
"""

from __future__ import annotations

from ..storage.errors import ModelError, ToolError
from .agent import Agent
from .answers import (
    Allow,
    Answer,
    Ask,
    Assembly,
    Boundary,
    CallResult,
    Command,
    Decide,
    Deny,
    Done,
    Enter,
    Failed,
    Later,
    LimitReached,
    Position,
    Proposal,
    Reject,
    Replace,
    Resend,
    Stop,
    Stopping,
    ToolCall,
)
from .channels import Channel
from .comparing import Comparison, compare_runs
from .delegation import delegate
from .handoff import handoff
from .limits import Limits
from .models.model import Model, Prepared, RetryPolicy
from .plugins import default_plugins
from .recall import recall
from .ref import AgentRef
from .run import run_sync
from .seams import Next, Plugin, SeamContext
from .system import System
from .tools import Tool, ToolContext, ToolOutput, tool
from .values import AgentInfo, AgentSummary, Approval, Delivery, Delta, Inbound, Outcome, Receipt, Timer, Wait

__all__ = [
    "Agent",
    "AgentInfo",
    "AgentRef",
    "AgentSummary",
    "Allow",
    "Answer",
    "Approval",
    "Ask",
    "Assembly",
    "Boundary",
    "CallResult",
    "Channel",
    "Command",
    "Comparison",
    "Decide",
    "Delivery",
    "Delta",
    "Deny",
    "Done",
    "Enter",
    "Failed",
    "Inbound",
    "Later",
    "LimitReached",
    "Limits",
    "Model",
    "ModelError",
    "Next",
    "Outcome",
    "Plugin",
    "Position",
    "Prepared",
    "Proposal",
    "Receipt",
    "Reject",
    "Replace",
    "Resend",
    "RetryPolicy",
    "SeamContext",
    "Stop",
    "Stopping",
    "System",
    "Timer",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolError",
    "ToolOutput",
    "Wait",
    "compare_runs",
    "default_plugins",
    "delegate",
    "handoff",
    "recall",
    "run_sync",
    "tool",
]
