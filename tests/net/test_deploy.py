"""The examples for deployment: what they call exists, and what they say of signals and times is what the service does."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import tomllib
from pathlib import Path

from callboard.net.cli.parser import make_parser
from callboard.net.cli.problems import TERMINATED

DEPLOY = Path(__file__).resolve().parents[2] / "docs" / "deploy"


def unit() -> configparser.ConfigParser:
    found = configparser.ConfigParser(strict=False, interpolation=None)
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read(DEPLOY / "callboard.service", encoding="utf-8")
    return found


def test_the_unit_calls_a_command_that_there_is_and_gives_it_time() -> None:
    service = unit()["Service"]
    program, *words = shlex.split(service["ExecStart"])
    assert program == "/opt/callboard/bin/callboard"
    arguments = make_parser().parse_args(words)
    assert (arguments.command, arguments.drain, arguments.tokens) == ("serve", "finish", "${CREDENTIALS_DIRECTORY}/tokens.toml")
    assert arguments.state == "${STATE_DIRECTORY}/state"
    assert int(service["TimeoutStopSec"]) > arguments.grace, "systemd must not kill what still drains"
    assert int(service["SuccessExitStatus"]) == TERMINATED and service["KillSignal"] == "SIGTERM"
    credential = service["LoadCredential"].partition(":")
    assert credential[0] == "tokens.toml"


def test_the_image_calls_a_command_that_there_is_and_asks_for_its_health() -> None:
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = dict(re.findall(r"^(ENTRYPOINT|CMD|STOPSIGNAL|EXPOSE|HEALTHCHECK|USER|FROM) (.*)$", text, re.MULTILINE))
    words = [*json.loads(lines["ENTRYPOINT"]), *json.loads(lines["CMD"])]
    arguments = make_parser().parse_args(words[1:])
    assert words[0] == "callboard" and arguments.command == "serve" and str(arguments.port) == lines["EXPOSE"]
    assert lines["STOPSIGNAL"] == "SIGTERM" and lines["USER"] != "root"
    health = json.loads(lines["HEALTHCHECK"].partition("CMD ")[2])
    assert health[0] == "python" and f"127.0.0.1:{arguments.port}/healthz" in health[2]
    compile(health[2], "HEALTHCHECK", "exec")
    tokens = re.search(r"CALLBOARD_TOKENS='(.*?)'", text)
    assert tokens is not None
    assert tomllib.loads(tokens[1]) == {"SECRET": {"scopes": ["admin"]}}
