"""Every prefix of any life that ends between two appends, taken as what a crash left, is recovered: in both modes, and again.

This is the short form; `make prove` looks at as many lives as one has time for (`tests/actors/prove.py`). What must hold is said
in `proof.py` and `proof_rules.py`; a life that fails is printed as a program.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from helpers import notation
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from life_scripts import Life, Moment, lives
from proof import live, run
from proof_rules import Logs

from callboard.mailbox.addresses import effect_key
from callboard.storage import events as e

SHORT = settings(
    deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow], phases=[Phase.generate]
)


@settings(SHORT, max_examples=12)
@given(lives)
def test_c244_every_prefix_of_any_life_is_recovered(life: Life) -> None:
    run(life)


@settings(SHORT, max_examples=40)
@given(lives, st.integers(1, 60), st.sampled_from(["close", "cut"]), st.sampled_from(["continue", "end"]))
def test_c065_c258_a_system_that_closes_at_any_append_goes_on_at_the_next_start(
    life: Life, appended: int, how: str, mode: str
) -> None:
    moments = (Moment(appended, how),)
    lived = live(msgspec.structs.replace(life, meanwhile=moments, recovery=mode))
    for log in lived.logs.values():
        suspended, resumed = (sum(isinstance(r.event, kind) for r in log) for kind in (e.TurnSuspend, e.TurnResume))
        assert suspended == resumed, notation(log)
        assert mode == "continue" or not suspended, notation(log)
    for key in _once(lived.logs):
        assert lived.world.bodies[key] <= 1, f"{key} ran {lived.world.bodies[key]} times"


def _once(logs: Logs) -> Iterator[str]:
    """The effect keys of bodies that may run only once."""
    for agent, log in logs.items():
        for call in (record.event for record in log):
            if isinstance(call, e.ToolCalled) and call.replay == "never":
                yield effect_key(agent, call.turn, call.step, call.call_id)
