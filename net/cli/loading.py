"""The agent in `FILE:NAME`: run the file as a module and take the name out of it. Every mistake is one sentence."""

from __future__ import annotations

import difflib
import importlib.util
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from ...actors.agent import Agent
from .problems import Refused


class Loaded(NamedTuple):
    """An agent of a file, and what the file has for the system: `deps`, which tools find in `ctx.deps`, and `models`."""

    agent: Agent[Any, Any]
    deps: Any
    models: Mapping[str, Any] | None


def load_agent(where: str) -> Loaded:
    """The Agent at `FILE:NAME`, with the file's `deps` and `models`; the name may be left out where the file has only one.

    Raises:
        Refused: there is no such file or name, the file fails, or the name is something else.
    """
    file, name = _split(where)
    names = vars(_run_file(file))
    agent = agent_in(names, file, name)
    _check_deps(agent, names, file)
    return Loaded(agent, names.get("deps"), names.get("models"))


def agent_in(names: Mapping[str, Any], file: Path, name: str) -> Agent[Any, Any]:
    """The Agent `name` among the names of a file; the only one if `name` is empty.

    Raises:
        Refused: there is none of that name, or it is something else.
    """
    found: dict[str, Agent[Any, Any]] = {key: value for key, value in names.items() if isinstance(value, Agent)}
    if not name:
        return _only_one(file, found)
    if name in found:
        return found[name]
    if name in names:
        raise Refused(f"{name} in {file} is no Agent but a {type(names[name]).__name__}; {_listed(found)}")
    close = difflib.get_close_matches(name, found, n=1)
    raise Refused(f"there is no {name} in {file}; {f'did you mean {close[0]}?' if close else _listed(found)}")


class Files:
    """Python files that the words of one command name, each run once."""

    def __init__(self) -> None:
        self._names: dict[Path, Mapping[str, Any]] = {}

    def look(self, where: str) -> tuple[Mapping[str, Any], Path, str]:
        """The names in the file of `FILE:NAME`, the file, and the name.

        Raises:
            Refused: there is no such file, or it fails.
        """
        file, name = _split(where)
        if file not in self._names:
            self._names[file] = vars(_run_file(file))
        return self._names[file], file, name


class Served(NamedTuple):
    """What a file has for a service: every Agent in it, its `deps`, which tools find in `ctx.deps`, `channels` and `models`."""

    agents: list[Agent[Any, Any]]
    deps: Any
    channels: Mapping[str, Any] | None
    models: Mapping[str, Any] | None


def load_served(file: str) -> Served:
    """What is to be served of a file.

    Raises:
        Refused: there is no such file, it fails, or there is no Agent in it.
    """
    path, name = _split(file, "FILE, a Python file with Agents in it")
    if name:
        raise Refused(f"all Agents of a file are served: give {path} without :{name}")
    names = vars(_run_file(path))
    found: dict[str, Agent[Any, Any]] = {key: value for key, value in names.items() if isinstance(value, Agent)}
    agents = {id(agent): agent for agent in found.values()}
    if not agents:
        raise Refused(f'there is no Agent in {path}; write one at its top level: NAME = Agent("NAME", model="PROVIDER:MODEL")')
    for agent in agents.values():
        _check_deps(agent, names, path)
    return Served(list(agents.values()), names.get("deps"), names.get("channels"), names.get("models"))


def _check_deps(agent: Agent[Any, Any], names: Mapping[str, Any], file: Path) -> None:
    """Say in the file's terms what opening a system would say in those of its caller."""
    deps = names.get("deps")
    if agent.deps is not None and not isinstance(deps, agent.deps):
        wanted = agent.deps.__name__
        has = f"its `deps` is a {type(deps).__name__}" if "deps" in names else "it has none"
        raise Refused(
            f"the Agent {agent.name!r} in {file} expects `deps` of {wanted}, and {has}; write deps = {wanted}(...) there"
        )


def _split(where: str, wanted: str = "FILE:NAME, a Python file and the name of the Agent in it") -> tuple[Path, str]:
    file, colon, name = where.rpartition(":")
    if not colon or not (name.isidentifier() or not name):
        file, name = where, ""
    path = Path(file)
    if not path.is_file():
        raise Refused(f"there is no file {file}; give {wanted}")
    if path.suffix != ".py":
        raise Refused(f"{file} is no Python file; give {wanted}, whose name ends in .py")
    return path, name


def _run_file(file: Path) -> ModuleType:
    # A module's own name, as far as it is free: a file json.py must not stand for the library of that name.
    name = file.stem if file.stem not in sys.modules else f"callboard_agent_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise Refused(f"{file} cannot be loaded as a Python file")
    module = importlib.util.module_from_spec(spec)
    # As `python FILE` does: the file's neighbours can be imported, and what it defines can be found by its module's name.
    sys.path.insert(0, str(file.resolve().parent))
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise Refused(f"{file} fails when it is loaded: {_where(error, file)}") from error
    return module


def _where(error: BaseException, file: Path) -> str:
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__} at line {error.lineno}: {error.msg}"
    lines = [
        f.lineno
        for f in traceback.extract_tb(error.__traceback__)
        if Path(f.filename) == file.resolve() or f.filename == str(file)
    ]
    line = f" at line {lines[-1]}" if lines else ""
    if "call run() from inside a run()" in str(error):
        return f"it runs something{line}; put that under `if __name__ == '__main__':`"
    return f"{type(error).__name__}{line}: {error}"


def _only_one(file: Path, found: dict[str, Agent[Any, Any]]) -> Agent[Any, Any]:
    if len(found) == 1:
        return next(iter(found.values()))
    raise Refused(f"give {file}:NAME; {_listed(found)}")


def _listed(found: dict[str, Agent[Any, Any]]) -> str:
    return f"its Agents are {', '.join(sorted(found))}" if found else "there is no Agent in it"
