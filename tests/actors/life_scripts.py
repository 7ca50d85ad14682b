"""Any life of a few agents, as a value: what their models say in each step, and what plugins, tools and people do meanwhile.

`a` answers prompts; its tools may write to or ask its peer `b`, and give tasks to children. A script is keyed by (agent, turn,
step), so the same one plays again after a crash: an action has an id made of its place, and whatever turn and step a recovery
comes to, the script has an answer, and every turn ends. The repr of a life is Python that rebuilds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Literal

from hypothesis import strategies as st
from msgspec import Struct

Kind = Literal["text", "tools", "max-tokens", "empty", "refusal", "hang", "answer", "bad-answer"]
KINDS: tuple[Kind, ...] = ("text", "tools", "max-tokens", "empty", "refusal", "hang", "answer", "bad-answer")
Recovery = Literal["continue", "end"]

DOES = ("steer", "inject", "followup", "cancel", "park", "hook", "withdraw", "replace")
"""What a tool, a plugin or a person may do to an agent: `park` is a cancel that keeps the inbox, `hook` one with a text."""
MOMENTS = (*DOES, "dispose", "close", "cut")
"""What may be done from outside; `close` and `cut` end the system (without grace; by a cancel around it), and open it again."""
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
DELEGATIONS = ("delegating", "background")
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
        prompts=1 + (few() < 0.5),
        slash=few() < 0.3,
        peer=_turn(choice, (PLAIN, ODD), 2) if few() < 0.5 else (),
        child=_turn(choice, (PLAIN, ODD), 2) if few() < 0.6 else (),
        output=few() < 0.2,
        sections=tuple(choice.choice((None, "rain", "sun")) for _ in range(choice.randrange(4))) if few() < 0.4 else (),
        meanwhile=_moments(choice) if few() < 0.5 else (),
        verdicts=tuple(choice.choices(VERDICTS, (4, 2, 2, 1), k=2)),
        recovery=choice.choice(("continue", "continue", "end")),
        after_error=choice.choice(("park", "continue")),
        seed=choice.randrange(2**16),
    )


def _turn(choice: Random, tools: tuple[tuple[str, ...], ...], most: int) -> tuple[Step, ...]:
    return tuple(_step(choice, tools) for _ in range(choice.randint(1, most)))


def _step(choice: Random, tools: tuple[tuple[str, ...], ...]) -> Step:
    seams = tuple(_seam(choice) for _ in range(choice.choices((0, 1, 2), (3, 5, 3))[0]))
    at = {seam for seam, _ in seams}
    return Step(
        kind="tools" if at & TOOL_SEAMS else choice.choices(KINDS, (3, 12, 1, 1, 1, 1, 2, 1))[0],
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


def _moments(choice: Random) -> tuple[Moment, ...]:
    moments = [Moment(choice.randint(1, 60), choice.choice(MOMENTS), choice.choice("aab")) for _ in range(choice.randint(1, 3))]
    return tuple(sorted(moments, key=lambda moment: moment.at))


lives: st.SearchStrategy[Life] = st.randoms(use_true_random=True).map(any_life)
"""Hypothesis draws a life as a whole. Field by field it goes on from what it drew before: then four lives of five are near copies
of the one ahead of them, and most seams are never reached. `smaller.py` makes a failing one small."""
