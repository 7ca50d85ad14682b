"""Any life of a few agents, as a value: what their models say in each step, and what plugins, tools and people do meanwhile.

`a` answers prompts; its tools may write to or ask its peer `b`, and give tasks to children. A script is keyed by (agent, turn,
step), so the same one plays again after a crash: an action has an id made of its place, and whatever turn and step a recovery
comes to, the script has an answer, and every turn ends. The repr of a life is Python that rebuilds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Literal

import msgspec
from hypothesis import strategies as st
from life_chat import COMMANDS, DELIVERS
from msgspec import Struct

Kind = Literal["text", "tools", "max-tokens", "empty", "refusal", "hang", "answer", "bad-answer", "overflow"]
KINDS: tuple[Kind, ...] = ("text", "tools", "max-tokens", "empty", "refusal", "hang", "answer", "bad-answer", "overflow")
Summary = Literal["plain", "model", "empty", "failing", "longer", "hanging", "calling"]
SUMMARIES: tuple[Summary, ...] = ("plain", "plain", "model", "model", "empty", "failing", "longer", "hanging", "calling")
"""Who writes summaries, and how well."""
Recovery = Literal["continue", "end"]

DOES = ("steer", "inject", "followup", "cancel", "park", "hook", "withdraw", "replace")
"""What a tool, a plugin or a person may do to an agent: `park` is a cancel that keeps the inbox, `hook` one with a text."""
MOMENTS = (*DOES, "dispose", "close", "cut")
"""What may be done from outside; `close` and `cut` end the system (without grace; by a cancel around it), and open it again. On a
channel people also `say` something and give commands. After `full` the next commits fail, as on a full disk."""
ENDS = ("throw", "limit")
ANSWERS = {
    "accept": ("reject", "rewrite", "answer", *ENDS),
    "compact": ("rewrite", *ENDS, *DOES),
    "command": ("answer", "rewrite", *ENDS, *DOES),
    "assemble": ("rewrite", *ENDS, *DOES),
    "pre_step": ("reject", "rewrite", "add", "drop", *ENDS, *DOES),
    "request": ("rewrite", "lost", *ENDS, *DOES),
    "stream": ("rewrite", "alone", *ENDS, *DOES),
    "request_error": ("resend", "rewrite", "raise", *ENDS, *DOES),
    "turn_stopping": (*ENDS, *DOES),
    "respond": ("rewrite", "silent", *ENDS, *DOES),
    "tool_before": ("deny", "rewrite", "ask", "ask-rewritten", *ENDS, *DOES),
    "guard": ("deny", *ENDS, *DOES),
    "tool_around": ("alone", "rewrite", *ENDS, *DOES),
    "tool_after": ("rewrite", "block", "add", "conclude", *ENDS, *DOES),
}
"""What a plugin may do at each seam."""
TOOL_SEAMS = {"tool_before", "guard", "tool_around", "tool_after"}
PLAIN = ("safe_parallel", "safe_alone", "never_parallel", "never_alone", "concluding", "failing", "unknown", "telling")
ODD = ("malformed", "slow", "never_slow", "approved", "ask_again", "replying", "noting", "mailing", "asking")
DELEGATIONS = ("delegating", "background", "supervised", "handing")
TOOLS = (*PLAIN, *ODD, *DELEGATIONS)
PEER_TURNS = 3
"""After so many turns the peer only answers, or two agents could write to each other for ever."""
VERDICTS = ("allow", "deny", "reply", "nobody")


class Step(Struct, frozen=True, repr_omit_defaults=True):
    """What the model does in one step: fails so often, then answers; and what happens while it does."""

    kind: Kind = "text"
    tools: tuple[str, ...] = ()
    failures: int = 0
    streaming: str | None = None
    """While the answer streams."""
    in_tool: str | None = None
    """In every body that runs."""
    seams: tuple[tuple[str, str], ...] = ()
    """What a plugin does in it: (seam, action)."""


class Moment(Struct, frozen=True, repr_omit_defaults=True):
    """Something that is done from outside, once so many appends have been made."""

    at: int
    do: str
    to: str = "a"
    after_s: float = 0
    """So many seconds later: when agents may have fallen asleep."""


class Life(Struct, frozen=True, repr_omit_defaults=True):
    """Turns of steps; what lies beyond the script is a text, and nothing happens meanwhile."""

    turns: tuple[tuple[Step, ...], ...] = ()
    """Of the agent `a`."""
    prompts: int = 1
    slash: bool = False
    """Whether prompts look like commands."""
    peer: tuple[Step, ...] = ()
    """The first turns of the agent `b`."""
    child: tuple[Step, ...] = ()
    """The first turn of each child."""
    output: bool = False
    """Whether `a` and its children have to answer with a value."""
    sections: tuple[str | None, ...] = ()
    """The runtime context, by turn and step."""
    meanwhile: tuple[Moment, ...] = ()
    verdicts: tuple[str, ...] = ("allow",)
    """What a person answers, one question after the other."""
    recovery: Recovery = "continue"
    after_error: Literal["park", "continue"] = "park"
    chat: tuple[str, ...] = ()
    """What the channel does with one delivery after the other; without any there is no channel."""
    edits: bool = False
    """Whether it shows answers while they stream."""
    commands: bool = False
    """Whether agents know commands."""
    window: int = 0
    """Of the models, in tokens; 0: no window, and nothing is compacted."""
    summary: Summary = "plain"
    idle_compaction: bool = False
    """Whether an agent at rest is compacted."""
    again: bool = False
    """Whether agents go on after a cut answer, and are asked again after an empty one."""
    rest_s: float = 5
    """After how many seconds an agent leaves memory, and a turn that waits for a person its driver."""
    look_s: float = 3
    """How often a person looks for questions."""
    jump_s: int = 0
    """By how much the wall clock has jumped when it is recovered."""
    absent: bool = False
    """Whether the definition of `a` is missing at the first start after a crash, now and then."""
    seed: int = 0
    """Of the scheduler, and of the choice of crashes that are followed by another."""

    def step(self, agent: str, turn: int, step: int) -> Step:
        """What is played there."""
        if agent == "a":
            steps = self.turns[turn - 1] if 0 < turn <= len(self.turns) else ()
        elif agent == "b":
            steps = self.peer if turn <= PEER_TURNS else ()
        else:
            steps = self.child if turn == 1 else ()
        return steps[step - 1] if 0 < step <= len(steps) else Step()

    def steps(self) -> Iterator[Step]:
        """All that are written down."""
        for turn in (*self.turns, self.peer, self.child):
            yield from turn

    @property
    def fills(self) -> bool:
        """Whether commits fail in it: what memory held then is given up, so that its appends are no places to cut at."""
        return any(moment.do == "full" for moment in self.meanwhile)

    @property
    def asks(self) -> bool:
        """Whether a person may be asked something."""
        asking = {"approved", "ask_again"}
        return any(asking & {*s.tools} or any(does.startswith("ask") for _, does in s.seams) for s in self.steps())


# -- any of them


def any_life(choice: Random) -> Life:
    """A life at random: busy enough for much to happen, and rarely cut so early that nothing does."""
    few = choice.random
    return Life(
        turns=tuple(_turn(choice, (PLAIN, ODD, DELEGATIONS), 3) for _ in range(1 + (few() < 0.4))),
        prompts=choice.choice((1, 1, 2, 2, 3)),
        slash=few() < 0.3,
        peer=_turn(choice, (PLAIN, ODD), 2) if few() < 0.5 else (),
        child=_turn(choice, (PLAIN, ODD), 2) if few() < 0.6 else (),
        output=few() < 0.2,
        sections=tuple(choice.choice((None, "rain", "sun")) for _ in range(choice.randrange(4))) if few() < 0.4 else (),
        verdicts=tuple(choice.choices(VERDICTS, (4, 2, 2, 1), k=2)),
        recovery=choice.choice(("continue", "continue", "end")),
        after_error=choice.choice(("park", "continue")),
        **_surroundings(choice),
        seed=choice.randrange(2**16),
    )


def _surroundings(choice: Random) -> dict[str, Any]:
    """Where it is lived: in a chat or not, in a large window or a small one, with people who answer soon or late."""
    few = choice.random
    chat, commands = few() < 0.5, few() < 0.4
    moments = MOMENTS + (("full",) * 3 if few() < 0.1 else ()) + (("say", "say") if chat else ()) + (COMMANDS if commands else ())
    return {
        "chat": tuple(choice.choices(DELIVERS, (8, 2, 1, 1, 1, 1), k=choice.randint(1, 4))) if chat else (),
        "edits": few() < 0.3,
        "commands": commands,
        "meanwhile": _moments(choice, moments) if few() < (0.9 if chat or commands else 0.5) else (),
        "window": choice.choice((1300, 1700)) if few() < 0.35 else 0,
        "summary": choice.choice(SUMMARIES),
        "idle_compaction": few() < 0.3,
        "again": few() < 0.3,
        "rest_s": choice.choice((1, 5)),
        "look_s": choice.choice((3, 3, 8, 20)),
        "absent": few() < 0.3,
        "jump_s": choice.choice((0, 0, 0, -120, 31_536_000)),
    }


def _turn(choice: Random, tools: tuple[tuple[str, ...], ...], most: int) -> tuple[Step, ...]:
    steps = [_step(choice, tools) for _ in range(choice.randint(1, most))]
    if choice.random() < 0.15:  # something that a person has to decide
        at = choice.randrange(len(steps))
        steps[at] = msgspec.structs.replace(steps[at], kind="tools", tools=(*steps[at].tools[:2], "approved"))
    return tuple(steps)


def _step(choice: Random, tools: tuple[tuple[str, ...], ...]) -> Step:
    seams = tuple(_seam(choice) for _ in range(choice.choices((0, 1, 2), (3, 5, 3))[0]))
    at = {seam for seam, _ in seams}
    return Step(
        kind="tools" if at & TOOL_SEAMS else choice.choices(KINDS, (3, 12, 2, 2, 1, 1, 2, 1, 1))[0],
        tools=tuple(_tool(choice, tools) for _ in range(choice.choices((1, 2, 3, 4), (4, 3, 2, 1))[0])),
        failures=choice.choices((0, 1, 2, 3), (1 if "request_error" in at else 40, 3, 2, 1))[0],
        streaming=choice.choice(DOES) if choice.random() < 0.12 else None,
        in_tool=choice.choice(DOES) if choice.random() < 0.15 else None,
        seams=seams,
    )


def _tool(choice: Random, groups: tuple[tuple[str, ...], ...]) -> str:
    return choice.choice(choice.choices(groups, (5, 4, 3)[: len(groups)])[0])


def _seam(choice: Random) -> tuple[str, str]:
    seam = choice.choice(tuple(ANSWERS))
    own = [answer for answer in ANSWERS[seam] if answer not in DOES]
    return seam, choice.choice(own if choice.random() < 0.7 or seam == "accept" else DOES)


def _moments(choice: Random, does: tuple[str, ...]) -> tuple[Moment, ...]:
    moments = [
        Moment(choice.randint(1, 60), choice.choice(does), choice.choice("aab"), choice.choice((0, 0, 0, 2, 7)))
        for _ in range(choice.randint(1, 4))
    ]
    return tuple(sorted(moments, key=lambda moment: moment.at))


lives: st.SearchStrategy[Life] = st.randoms(use_true_random=True).map(any_life)
"""Hypothesis draws a life as a whole. Field by field it goes on from what it drew before: then four lives of five are near copies
of the one ahead of them, and most seams are never reached. `smaller.py` makes a failing one small."""
