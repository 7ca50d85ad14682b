"""The ground floor: messages, events, logs, and the stores they live in.

`messages`, `chunks` and `events` are the vocabulary; `records` an event with its place in a log; `store` the seam that engines
implement, `engines` the two in the box, `opening` opens one by its address; `log` and `writer` are the open end of logs and their
group commit; `folds` say what a log means, `digest` what a request was; `verify` checks all of it, `rebuild` gives one request
again; `exchange` takes logs out and in; `errors` is the one tree of errors. Nothing here imports another floor.
"""

from __future__ import annotations

from . import chunks
from .errors import (
    AgentDeleted,
    AgentNotFound,
    ApprovalExpired,
    AskCycle,
    AskTimeout,
    CallboardError,
    CommitFailed,
    DefinitionMissing,
    DeliveryFailed,
    Disconnected,
    FenceLost,
    InboxFull,
    InputDropped,
    InputError,
    InputParked,
    InputRefused,
    ModelError,
    NameMismatch,
    ServiceError,
    StaleAppend,
    StoreError,
    StoreFormat,
    StoreFull,
    StoreInUse,
    ToolError,
    TurnFailed,
    Unauthorized,
    UnknownRecord,
    UsageError,
)
from .exchange import backup, export_log, import_log
from .messages import Chunk, File, Image, Message, Request, TextBlock, Usage
from .opening import open_store
from .rebuild import Rebuilt, rebuild
from .records import Record
from .store import Store
from .verify import verify

__all__ = [
    "AgentDeleted",
    "AgentNotFound",
    "ApprovalExpired",
    "AskCycle",
    "AskTimeout",
    "CallboardError",
    "Chunk",
    "CommitFailed",
    "DefinitionMissing",
    "DeliveryFailed",
    "Disconnected",
    "FenceLost",
    "File",
    "Image",
    "InboxFull",
    "InputDropped",
    "InputError",
    "InputParked",
    "InputRefused",
    "Message",
    "ModelError",
    "NameMismatch",
    "Rebuilt",
    "Record",
    "Request",
    "ServiceError",
    "StaleAppend",
    "Store",
    "StoreError",
    "StoreFormat",
    "StoreFull",
    "StoreInUse",
    "TextBlock",
    "ToolError",
    "TurnFailed",
    "Unauthorized",
    "UnknownRecord",
    "Usage",
    "UsageError",
    "backup",
    "chunks",
    "export_log",
    "import_log",
    "open_store",
    "rebuild",
    "verify",
]
