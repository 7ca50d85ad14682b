"""A handle and a client have the methods of those they stand for, with the same parameters: a program works with either."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from callboard import System
from callboard.actors import AgentRef
from callboard.net import Client
from callboard.net.remote import RemoteRef

OWN = {
    AgentRef: {"source"},  # the log itself
    System: {
        *{"store", "statistics", "report"},  # of the process; over HTTP there are /metrics and /readyz
        *{"channels", "define", "definitions", "look", "refuse_questions", "start_task", "open", "spawn"},
    },
}
"""What is only there, or is something else here."""


def surface(cls: type) -> dict[str, Any]:
    return {name: getattr(cls, name) for name in dir(cls) if not name.startswith("_")}


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    return [(each.name, each.kind, each.default) for each in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize(("there", "here"), [(AgentRef, RemoteRef), (System, Client)])
def test_the_same_methods_with_the_same_parameters(there: type, here: type) -> None:
    theirs, ours = surface(there), surface(here)
    shared = set(theirs) - OWN[there]
    assert shared - set(ours) == set()
    for name in shared:
        if callable(theirs[name]):
            assert parameters(theirs[name]) == parameters(ours[name]), name
            assert inspect.iscoroutinefunction(theirs[name]) == inspect.iscoroutinefunction(ours[name]), name
