"""What programs import, and from where: these names are promised and stay where they are."""

from __future__ import annotations

import importlib

import pytest

PROMISED = {
    "callboard": "Agent System Plugin Limits ToolContext ToolError tool delegate run_sync",
    "callboard.actors": (
        "Agent System AgentRef Outcome Receipt Delta Plugin Limits tool ToolContext ToolOutput ToolError delegate Model "
        "ModelError Prepared Boundary Enter Reject Answer Resend Replace Allow Deny Ask Delivery Approval Timer AgentInfo Wait "
        "LimitReached Proposal Channel Inbound default_plugins run_sync"
    ),
    "callboard.actors.channels": "Channel MemoryChannel TerminalChannel WebhookChannel",
    "callboard.actors.plugins": "Retry Budget LoopGuard Permissions Invariants Redact",
    "callboard.actors.testing": "ScriptedModel Reply every_crash tool_context trio_wall",
    "callboard.net": "serve connect",
    "callboard.net.aio": "System connect",
    "callboard.net.mcp": "McpServer agents_server serve_stdio",
    "callboard.storage": (
        "open_store verify export_log import_log backup Store Record Message Request Usage chunks CallboardError UsageError "
        "NameMismatch AgentNotFound AgentDeleted DefinitionMissing AskCycle ApprovalExpired InputError InboxFull InputRefused "
        "InputDropped InputParked TurnFailed AskTimeout ModelError ToolError StoreError StoreInUse StoreFull CommitFailed "
        "StaleAppend FenceLost UnknownRecord ServiceError Disconnected Unauthorized"
    ),
}
"""Package → the names that documents and programs import from it."""


@pytest.mark.parametrize("package", PROMISED)
def test_promised_names_are_where_they_should_be(package: str) -> None:
    module = importlib.import_module(package)
    missing = [name for name in PROMISED[package].split() if name not in module.__all__ or not hasattr(module, name)]
    assert not missing, f"{package} has lost {', '.join(missing)}"


def test_a_name_means_the_same_wherever_it_is_imported_from() -> None:
    seen: dict[str, object] = {}
    for package, names in PROMISED.items():
        if package == "callboard.net.aio":
            continue  # the one that says the same words in another world
        for name in names.split():
            value = getattr(importlib.import_module(package), name)
            assert seen.setdefault(name, value) is value, f"{name} of {package} is another than elsewhere"


def test_every_error_of_the_tree_is_on_the_face() -> None:
    errors, face = importlib.import_module("callboard.storage.errors"), importlib.import_module("callboard.storage")
    tree = {n for n, v in vars(errors).items() if isinstance(v, type) and issubclass(v, errors.CallboardError)}
    assert tree <= set(face.__all__)
